"""How much faster than the slowest model a node's cpu is, and how far its amounts are amplified.

Source: spec/slo-controller.md 6.1, 6.2; upstream pkg/slo-controller/noderesource/plugins/{cpunormalization,resourceamplification}.
"""

from collections.abc import Mapping

import msgspec

from services.slo_controller.overcommit.node_patch import NORMALIZATION_RATIO, ratio_of
from shared.domain.node_selection import first_match
from shared.errors import KoordError
from shared.kube.meta import Metadata
from shared.kube.node_resource_topology import CPU_BASIC_INFO
from shared.kube.slo_config import (
    AmplificationConfig,
    AmplificationStrategy,
    NormalizationConfig,
    NormalizationStrategy,
)

ENABLED = "node.koordinator.sh/cpu-normalization-enabled"
AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"

LEAST, MOST = 1.0, 5.0
TOLERANCE = 0.01

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class NoRatio(KoordError):
    """A ratio that cannot be told; what the node says stays as it is."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"node {node}: {reason}")


class CpuInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What the node's agent says of its cpu, in an annotation of the NodeResourceTopology."""

    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False


_info = msgspec.json.Decoder(CpuInfo)


def normalization_ratio(config: NormalizationConfig, node: Metadata, topology: Mapping[str, str] | None) -> str:
    """The text of the annotation: `1.00` where normalization is off.

    Args:
        topology: annotations of the node's NodeResourceTopology; None without one.

    Raises:
        NoRatio: the label is no truth value, the cpu is not known, or its ratio is not configured or out of bounds.
    """
    labels = node.labels or {}
    strategy: NormalizationStrategy = first_match(config.node_configs, labels) or config
    if not _is_enabled(node.name, labels.get(ENABLED), strategy):
        return "1.00"
    text = (topology or {}).get(CPU_BASIC_INFO)
    if not text:
        raise NoRatio(node.name, f"its NodeResourceTopology has no annotation {CPU_BASIC_INFO}")
    try:
        info = _info.decode(text)
    except msgspec.DecodeError as error:
        raise NoRatio(
            node.name, f"annotation {CPU_BASIC_INFO} of its NodeResourceTopology cannot be read: {error}"
        ) from error
    ratio = _ratio(strategy, info)
    if ratio is None:
        raise NoRatio(node.name, f"no ratio is configured for {info.cpu_model!r}; add it to cpu-normalization-config")
    if not LEAST <= ratio <= MOST:
        raise NoRatio(node.name, f"the ratio of {info.cpu_model!r} is {ratio}; give {LEAST} to {MOST}")
    return f"{ratio:.2f}"


def normalization_moved(old: str | None, new: str | None) -> bool:
    """Whether the annotation is written: it appears, or moves by more than 0.01, or what is there cannot be read."""
    if old is None or new is None:
        return old is not new
    before, after = ratio_of(old), ratio_of(new)
    if before <= 0:
        return True
    return after > 0 and (before < after - TOLERANCE or before > after + TOLERANCE)


def amplification_ratios(config: AmplificationConfig, node: Metadata) -> str | None:
    """The text of the annotation; None: there is to be none.

    The cpu's own ratio multiplies with the one that the node's annotation has at this moment: a new one shows in the next calculation
    (quirk Q14).

    Raises:
        NoRatio: a ratio below 1.
    """
    strategy: AmplificationStrategy = first_match(config.node_configs, node.labels or {}) or config
    ratios = dict(strategy.resource_amplification_ratio or {}) if strategy.enable else {}
    cpu = ratios.get("cpu", 0.0)
    cpu = cpu if cpu > 0 else 1.0
    speed = ratio_of((node.annotations or {}).get(NORMALIZATION_RATIO))
    final = cpu * speed if speed > 0 else cpu
    if final > 1:
        ratios["cpu"] = final
    for name, ratio in sorted(ratios.items()):
        if ratio < 1:
            raise NoRatio(node.name, f"the amplification ratio of {name} is {ratio}; give at least 1")
    if not ratios:
        return None
    return "{" + ",".join(f'"{name}":{ratio:.2f}' for name, ratio in sorted(ratios.items())) + "}"


def _is_enabled(node: str, label: str | None, strategy: NormalizationStrategy) -> bool:
    if label is None:
        return strategy.enable is True
    if label in _TRUE or label in _FALSE:
        return label in _TRUE
    raise NoRatio(node, f"label {ENABLED} is {label!r}; give true or false")


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
