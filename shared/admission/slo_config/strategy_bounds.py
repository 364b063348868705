"""The bounds of numbers in strategies. Source: spec/slo-controller.md 2.1 (webhook validity), 7.2; upstream struct tags."""

from collections.abc import Callable, Mapping
from typing import Any

from shared.kube.slo_config import (
    ColocationStrategy,
    CpuBurst,
    CpuQos,
    InterferenceStrategy,
    MemoryQos,
    Part,
    ResctrlQos,
    ResourceThreshold,
    SystemStrategy,
)

Bound = tuple[float | None, float | None]

_PERCENT: Bound = (0, 100)
_POSITIVE: Bound = (1, None)
_NOT_NEGATIVE: Bound = (0, None)
_SWITCH: Bound = (0, 1)

BOUNDS: Mapping[type[Part], Mapping[str, Bound]] = {
    ColocationStrategy: {
        "metricAggregateDurationSeconds": _POSITIVE,
        "metricReportIntervalSeconds": _POSITIVE,
        "cpuReclaimThresholdPercent": _NOT_NEGATIVE,
        "memoryReclaimThresholdPercent": _NOT_NEGATIVE,
        "degradeTimeMinutes": _POSITIVE,
        "updateTimeThresholdSeconds": _POSITIVE,
        "midCPUThresholdPercent": _PERCENT,
        "midMemoryThresholdPercent": _PERCENT,
        "midUnallocatedPercent": _PERCENT,
        "midStaticCPUReservedPercent": _PERCENT,
        "midStaticMemoryReservedPercent": _PERCENT,
        "batchCPUThresholdPercent": _NOT_NEGATIVE,
        "batchMemoryThresholdPercent": _NOT_NEGATIVE,
    },
    ResourceThreshold: {
        "cpuSuppressThresholdPercent": _PERCENT,
        "cpuSuppressMinPercent": _PERCENT,
        "memoryEvictThresholdPercent": _PERCENT,
        "memoryEvictLowerPercent": _PERCENT,
        "memoryAllocatableEvictThresholdPercent": _NOT_NEGATIVE,
        "memoryAllocatableEvictLowerPercent": _NOT_NEGATIVE,
        "cpuEvictBESatisfactionUpperPercent": _PERCENT,
        "cpuEvictBESatisfactionLowerPercent": _PERCENT,
        "cpuEvictBEUsageThresholdPercent": _PERCENT,
        "cpuEvictTimeWindowSeconds": _POSITIVE,
        "cpuEvictThresholdPercent": _PERCENT,
        "cpuEvictLowerPercent": _PERCENT,
        "cpuAllocatableEvictThresholdPercent": _NOT_NEGATIVE,
        "cpuAllocatableEvictLowerPercent": _NOT_NEGATIVE,
        "allocatableEvictPriorityThreshold": (0, 7999),
    },
    CpuQos: {"groupIdentity": (-1, 2), "schedIdle": _SWITCH},
    MemoryQos: {
        "minLimitPercent": _PERCENT,
        "lowLimitPercent": _PERCENT,
        "throttlingPercent": _PERCENT,
        "wmarkRatio": _PERCENT,
        "wmarkScalePermill": (1, 1000),
        "wmarkMinAdj": (-25, 50),
        "priorityEnable": _SWITCH,
        "priority": (0, 12),
        "oomKillGroup": _SWITCH,
        "pageCacheLimitPercent": _PERCENT,
    },
    ResctrlQos: {"catRangeStartPercent": _PERCENT, "catRangeEndPercent": _PERCENT, "mbaPercent": _PERCENT},
    CpuBurst: {
        "cpuBurstPercent": (1, 10_000),
        "cfsQuotaBurstPercent": (100, None),
        "cfsQuotaBurstPeriodSeconds": (-1, None),
        "sharePoolThresholdPercent": _PERCENT,
    },
    InterferenceStrategy: {
        "deviationPercent": (1, 10_000),
        "standardDeviations": (0, 100),
        "sustainSeconds": (1, 60),
        "recoverySeconds": (1, 3600),
        "learnSeconds": (1, 604_800),
        "halfLifeSeconds": (60, 31_536_000),
        "minCorrelationPercent": (1, 100),
        "suppressPercent": _PERCENT,
    },
    SystemStrategy: {
        "minFreeKbytesFactor": _POSITIVE,
        "watermarkScaleFactor": (1, 400),
        "memcgReapBackGround": _SWITCH,
        "pageCacheLimitEnabled": _SWITCH,
    },
}
"""Minimum and maximum, by the document's own name of a field."""

PAIRS: Mapping[type[Part], tuple[tuple[str, str], ...]] = {
    ResourceThreshold: (
        ("memoryEvictThresholdPercent", "memoryEvictLowerPercent"),
        ("memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent"),
        ("cpuEvictBESatisfactionUpperPercent", "cpuEvictBESatisfactionLowerPercent"),
        ("cpuEvictThresholdPercent", "cpuEvictLowerPercent"),
        ("cpuAllocatableEvictThresholdPercent", "cpuAllocatableEvictLowerPercent"),
    ),
    ResctrlQos: (("catRangeEndPercent", "catRangeStartPercent"),),
}
"""Of each pair the first must be larger."""


def value_out_of_bounds(part: Part, *, pairs_whole: bool) -> tuple[str, str] | None:
    """Returns the first value out of its bounds: (path, what to do); None when all are within.

    Args:
        pairs_whole: one field of a pair without the other violates the rule (quirk Q9).
    """
    kind = next((base for base in type(part).__mro__ if base in BOUNDS), None)
    fields = fields_of(part)
    if kind is not None:
        if found := _out_of_bounds(fields, BOUNDS[kind]) or _unordered(fields, PAIRS.get(kind, ()), whole=pairs_whole):
            return found
        ratio = fields.get("resourceDiffThreshold")
        if ratio is not None and not 0 < ratio <= 1:
            return "resourceDiffThreshold", f"is {ratio}; give more than 0, at most 1"
    return _nested_violation(fields, lambda inner: value_out_of_bounds(inner, pairs_whole=pairs_whole))


def fields_of(part: Part) -> dict[str, Any]:
    """Returns a part's fields by the document's own names."""
    return dict(
        zip(type(part).__struct_encode_fields__, (getattr(part, name) for name in part.__struct_fields__), strict=True)
    )


def _nested_violation(
    fields: Mapping[str, object], find_violation: Callable[[Part], tuple[str, str] | None]
) -> tuple[str, str] | None:
    """Returns the first violation in the nested parts, with its path."""
    for name, value in fields.items():
        if isinstance(value, Part) and (found := find_violation(value)):
            return f"{name}.{found[0]}", found[1]
    return None


def _out_of_bounds(fields: Mapping[str, object], bounds: Mapping[str, Bound]) -> tuple[str, str] | None:
    for name, (low, high) in bounds.items():
        value = fields[name]
        if not isinstance(value, int | float):
            continue
        if (low is not None and value < low) or (high is not None and value > high):
            range_text = f"at least {low:g}" if high is None else f"{low:g} to {high:g}"
            return name, f"is {value}; give {range_text}"
    return None


def _unordered(
    fields: Mapping[str, object], pairs: tuple[tuple[str, str], ...], *, whole: bool
) -> tuple[str, str] | None:
    for upper, lower in pairs:
        high, low = fields[upper], fields[lower]
        if high is None and low is None:
            continue
        if not isinstance(high, int) or not isinstance(low, int):
            if whole:
                name, other = (lower, upper) if high is None else (upper, lower)
                return name, f"is {fields[name]} without {other}; give both"
        elif high <= low:
            return upper, f"is {high}; give more than {lower}, which is {low}"
    return None
