"""Mid resources: requests of prod pods that they are predicted not to need, overcommitted to mid pods.

Source: spec/slo-controller.md 5; upstream pkg/slo-controller/noderesource/plugins/midresource.
"""

import math
from functools import lru_cache
from typing import NamedTuple

from services.slo_controller.overcommit.usage_sums import UsageSums
from services.slo_controller.state.usage_report import MID_BAND, UsageReport
from shared.domain.cpu_memory import ZERO, Amount
from shared.kube.quantity import milli, value
from shared.kube.slo_config import ColocationStrategy

CPU, MEMORY = "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"

STATIC = "static"


class MidResources(NamedTuple):
    """Mid resources of a node in milli-cores and bytes, and the terms of the formula.

    Attributes:
        base: predicted to be reclaimable, and not in use; 0 in static mode.
        unallocated: not requested by prod pods; 0 in static mode.
        limit: upper bound.
    """

    cpu: int
    memory: int
    base: tuple[int, int]
    unallocated: tuple[int, int]
    limit: tuple[int, int]


def calculate_mid(
    capacity: Amount, reserved: Amount, report: UsageReport, usage_sums: UsageSums, of: ColocationStrategy
) -> MidResources:
    """Calculates a node's mid resources.

    Dynamic: min( max(min(reclaimable, unused), 0) + unallocated * midUnallocatedPercent, capacity * threshold ).
    Static: a share of the capacity, at most the threshold.
    """
    limit = _shares(
        capacity,
        _or(of.mid_cpu_threshold_percent, 100),
        _or(of.mid_memory_threshold_percent, 100),
    )
    if of.mid_reclaim_mode == STATIC:
        cpu, memory = _shares(
            capacity, _or(of.mid_static_cpu_reserved_percent, 0), _or(of.mid_static_memory_reserved_percent, 0)
        )
        return MidResources(min(cpu, limit[0]), min(memory, limit[1]), (0, 0), (0, 0), limit)
    unused = capacity.minus(report.node).minus(usage_sums.unreported) if report.node is not None else ZERO
    base = (
        max(min(milli(report.reclaimable.cpu), milli(unused.cpu)), 0),
        max(min(value(report.reclaimable.memory), value(unused.memory)), 0),
    )
    unallocated = (0, 0)
    if percent := _or(of.mid_unallocated_percent, 0):
        system = report.system.plus(report.applications_above(MID_BAND)).largest(reserved)
        free = capacity.minus(system).minus(usage_sums.prod_request).minus(usage_sums.unreported).not_negative()
        unallocated = _share(milli(free.cpu), percent), _share(value(free.memory), percent)
    return MidResources(
        min(base[0] + unallocated[0], limit[0]), min(base[1] + unallocated[1], limit[1]), base, unallocated, limit
    )


@lru_cache(maxsize=4096)  # a fleet has few sizes of machines
def _shares(capacity: Amount, cpu_percent: int, memory_percent: int) -> tuple[int, int]:
    return _share(milli(capacity.cpu), cpu_percent), _share(value(capacity.memory), memory_percent)


def _or(percent: int | None, default: int) -> int:
    """Returns a field of the strategy, or its default: spec/slo-controller.md 2.1."""
    return default if percent is None else percent


def _share(size: int, percent: int) -> int:
    return math.trunc(float(size) * (percent / 100))
