"""The colocation strategy of a node: defaults, validity, and the merge of cluster, node strategies, annotation and
labels.

Source: spec/slo-controller.md 2; upstream pkg/util/sloconfig/colocation_config.go.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from shared.domain.node_selection import first_match
from shared.domain.strategy_merge import merged
from shared.kube.instants import BadTime, duration_ns, duration_text
from shared.kube.json_text import decode_with
from shared.kube.meta import Metadata
from shared.kube.quantity import BadQuantity, nanos
from shared.kube.slo_config import AggregatePolicy, ColocationConfig, ColocationStrategy

ANNOTATION = "node.koordinator.sh/colocation-strategy"

RATIO_LABELS = {
    "node.koordinator.sh/cpu-reclaim-ratio": "cpu_reclaim_threshold_percent",
    "node.koordinator.sh/memory-reclaim-ratio": "memory_reclaim_threshold_percent",
    "node.koordinator.sh/mid-static-cpu-reserved-ratio": "mid_static_cpu_reserved_percent",
    "node.koordinator.sh/mid-static-memory-reserved-ratio": "mid_static_memory_reserved_percent",
}
MOST_RATIO = 10.0
"""A ratio above it is ignored: 7000 % of a node cannot be meant where 70 % is written in the same way."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?").fullmatch

DEFAULTS = ColocationStrategy(
    enable=False,
    metric_aggregate_duration_seconds=300,
    metric_report_interval_seconds=60,
    metric_aggregate_policy=AggregatePolicy(durations=("5m0s", "10m0s", "30m0s")),
    metric_memory_collect_policy="usageWithoutPageCache",
    cpu_reclaim_threshold_percent=60,
    cpu_calculate_policy="usage",
    memory_reclaim_threshold_percent=65,
    memory_calculate_policy="usage",
    degrade_time_minutes=15,
    update_time_threshold_seconds=300,
    resource_diff_threshold=0.1,
    mid_cpu_threshold_percent=100,
    mid_memory_threshold_percent=100,
    mid_unallocated_percent=0,
    mid_static_cpu_reserved_percent=0,
    mid_static_memory_reserved_percent=0,
)
"""Source: spec/slo-controller.md 2.1."""

DEFAULT_CONFIG = ColocationConfig(**msgspec.structs.asdict(DEFAULTS))

_decoder = msgspec.json.Decoder(ColocationStrategy)


def first_invalid_field(strategy: ColocationStrategy) -> tuple[str, str] | None:
    """Returns the first invalid field of a merged strategy, and the reason; None when all are valid.

    Source: spec/slo-controller.md 2.1.
    """
    for name in (
        "metric_aggregate_duration_seconds",
        "metric_report_interval_seconds",
        "degrade_time_minutes",
        "update_time_threshold_seconds",
        "resource_diff_threshold",
    ):
        if (value := getattr(strategy, name)) is not None and not value > 0:
            return _named(name), f"is {value}; give more than 0"
    for name in (
        "cpu_reclaim_threshold_percent",
        "memory_reclaim_threshold_percent",
        "mid_static_cpu_reserved_percent",
        "mid_static_memory_reserved_percent",
        "batch_cpu_threshold_percent",
        "batch_memory_threshold_percent",
    ):
        if (value := getattr(strategy, name)) is not None and value < 0:
            return _named(name), f"is {value}; give at least 0"
    for name in ("mid_cpu_threshold_percent", "mid_memory_threshold_percent", "mid_unallocated_percent"):
        if (value := getattr(strategy, name)) is not None and not 0 <= value <= 100:
            return _named(name), f"is {value}; give a percentage from 0 to 100"
    if strategy.metric_memory_collect_policy == "":
        return (
            "metricMemoryCollectPolicy",
            "is empty; give usageWithoutPageCache, usageWithHotPageCache or usageWithPageCache",
        )
    return _invalid_limit(strategy)


def _invalid_limit(strategy: ColocationStrategy) -> tuple[str, str] | None:
    """Returns the first amount of the floor or the cap that bounds nothing, and the reason."""
    limits = strategy.koordstream
    if limits is None:
        return None
    most: dict[str, int] = {}
    for name, texts in (("cap", limits.cap or {}), ("floor", limits.floor or {})):
        for resource, text in texts.items():
            path = f"koordstream.{name}.{resource}"
            if resource not in ("cpu", "memory"):
                return path, "bounds nothing; give cpu or memory"
            try:
                amount = nanos(text)
            except BadQuantity as error:
                return path, str(error)
            if amount < 0:
                return path, f"is {text}; give at least 0"
            if amount > most.setdefault(resource, amount):
                return path, f"is {text}, above the cap; give at most the cap"
    return None


def decoded(text: str | bytes) -> ColocationStrategy | None:
    """Reads the strategy in an annotation; None when it cannot be read or is null."""
    try:
        return decode_with(_decoder, text)
    except msgspec.DecodeError:
        return None


def with_durations(strategy: ColocationStrategy) -> AggregatePolicy | None:
    """Returns the aggregation windows in the form that Go writes: `1m` as `1m0s`.

    Raises:
        BadTime: a window is no duration.
    """
    policy = strategy.metric_aggregate_policy
    return policy and AggregatePolicy(durations=tuple(duration_text(duration_ns(text)) for text in policy.durations))


def effective_strategy(
    config: ColocationConfig, node: Metadata, cluster: ColocationStrategy | None = None
) -> ColocationStrategy:
    """Merges the strategy of a node: label over annotation over first matching node strategy over cluster strategy.

    Values of an annotation or a label are not validated again (quirk Q17). Source: spec/slo-controller.md 2.3.

    Args:
        cluster: `cluster_strategy(config)`, where the caller has it.
    """
    labels, annotations = node.labels or {}, node.annotations or {}
    strategy: ColocationStrategy = cluster or cluster_strategy(config)
    if entry := first_match(config.node_configs, labels):
        strategy = merged(strategy, entry)
    if (text := annotations.get(ANNOTATION)) and (annotated := decoded(text)):
        with suppress(BadTime):  # upstream ignores an annotation that it cannot read
            strategy = merged(strategy, replace(annotated, metric_aggregate_policy=with_durations(annotated)))
    return _with_labels(strategy, labels) if labels else strategy


def cluster_strategy(config: ColocationConfig) -> ColocationStrategy:
    """Returns the strategy of nodes that no node strategy selects."""
    return ColocationStrategy(**{name: getattr(config, name) for name in ColocationStrategy.__struct_fields__})


def is_overcommitted(config: ColocationConfig, strategy: ColocationStrategy) -> bool:
    """Reports whether a node is overcommitted: both the cluster's switch and the node's must be on."""
    return config.enable is True and strategy.enable is True


def _with_labels(strategy: ColocationStrategy, labels: Mapping[str, str]) -> ColocationStrategy:
    changes = {
        field: percent
        for label, field in RATIO_LABELS.items()
        if label in labels and (percent := _percent(labels[label])) is not None
    }
    return replace(strategy, **changes) if changes else strategy


def ratio_fault(text: str | None) -> str:
    """Returns why the ratio of a label is ignored; empty where it is not, or there is none."""
    if text is None or _percent(text) is not None:
        return ""
    return f"is {text!r}, and is ignored; give a ratio from 0 to {MOST_RATIO:g}, such as 0.7"


def _percent(text: str) -> int | None:
    """Converts a ratio to a percentage, truncated: `0.29` is 28, since 0.29 * 100 is a little less than 29."""
    if not _NUMBER(text):
        return None
    ratio = float(text)
    return math.trunc(ratio * 100) if 0 <= ratio <= MOST_RATIO else None


def _named(field: str) -> str:
    return ColocationStrategy.__struct_encode_fields__[ColocationStrategy.__struct_fields__.index(field)]
