"""The cpu normalization ratio of a node: how much faster its cpu is than the slowest model of the cluster.

Source: spec/slo-controller.md 6.1; upstream pkg/slo-controller/noderesource/plugins/cpunormalization.
"""

from collections.abc import Mapping

import msgspec

from services.slo_controller.overcommit.batch_and_mid_amounts_written_to_node import parse_ratio
from shared.domain.node_selection import first_match
from shared.errors import KoordError
from shared.kube.json_text import decode_with
from shared.kube.meta import Metadata
from shared.kube.node_resource_topology import CPU_BASIC_INFO
from shared.kube.slo_config import (
    NormalizationConfig,
    NormalizationStrategy,
)

ENABLED = "node.koordinator.sh/cpu-normalization-enabled"

MIN_RATIO, MAX_RATIO = 1.0, 5.0
TOLERANCE = 0.01

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class RatioError(KoordError):
    """A ratio that cannot be determined; the annotation of the node stays as it is."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"node {node}: {reason}")


class CpuInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The cpu of a node by the annotation of its NodeResourceTopology, which its agent reports."""

    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False


_info = msgspec.json.Decoder(CpuInfo)


def normalization_ratio(config: NormalizationConfig, node: Metadata, topology: Mapping[str, str] | None) -> str:
    """Returns the text of the annotation: `1.00` where normalization is off.

    Args:
        topology: annotations of the node's NodeResourceTopology; None without one.

    Raises:
        RatioError: the label is no truth value, the cpu is not known, or its ratio is not configured or out of bounds.
    """
    labels = node.labels or {}
    strategy: NormalizationStrategy = first_match(config.node_configs, labels) or config
    if not _is_enabled(node.name, labels.get(ENABLED), strategy):
        return "1.00"
    text = (topology or {}).get(CPU_BASIC_INFO)
    if not text:
        raise RatioError(node.name, f"its NodeResourceTopology has no annotation {CPU_BASIC_INFO}")
    try:
        info = decode_with(_info, text)
    except msgspec.DecodeError as error:
        raise RatioError(
            node.name, f"annotation {CPU_BASIC_INFO} of its NodeResourceTopology cannot be read: {error}"
        ) from error
    ratio = _ratio(strategy, info)
    if ratio is None:
        raise RatioError(
            node.name, f"no ratio is configured for {info.cpu_model!r}; add it to cpu-normalization-config"
        )
    if not MIN_RATIO <= ratio <= MAX_RATIO:
        raise RatioError(node.name, f"the ratio of {info.cpu_model!r} is {ratio}; give {MIN_RATIO} to {MAX_RATIO}")
    return f"{ratio:.2f}"


def ratio_changed(old: str | None, new: str | None) -> bool:
    """Reports whether the annotation must be written: it appears, changes by more than 0.01, or cannot be read."""
    if old is None or new is None:
        return old is not new
    before, after = parse_ratio(old), parse_ratio(new)
    if before <= 0:
        return True
    return after > 0 and (before < after - TOLERANCE or before > after + TOLERANCE)


def _is_enabled(node: str, label: str | None, strategy: NormalizationStrategy) -> bool:
    if label is None:
        return strategy.enable is True
    if label in _TRUE or label in _FALSE:
        return label in _TRUE
    raise RatioError(node, f"label {ENABLED} is {label!r}; give true or false")


def _ratio(strategy: NormalizationStrategy, info: CpuInfo) -> float | None:
    model = (strategy.ratio_model or {}).get(info.cpu_model)
    if model is None:
        return strategy.default_ratio
    match info.hyper_thread_enabled, info.turbo_enabled:
        case True, True:
            found = model.hyper_thread_turbo_enabled_ratio
        case True, False:
            found = model.hyper_thread_enabled_ratio
        case False, True:
            found = model.turbo_enabled_ratio
        case _:
            found = model.base_ratio
    return strategy.default_ratio if found is None else found
