"""Mid resources: what prod pods have asked for and are predicted not to need, to be sold to mid pods.

Source: spec/slo-controller.md 5; upstream pkg/slo-controller/noderesource/plugins/midresource.
"""

import math
from functools import lru_cache
from typing import NamedTuple

from services.slo_controller.overcommit.usage_sums import Books
from services.slo_controller.state.node_usage import MID_BAND, Measured
from shared.domain.cpu_memory import ZERO, Amount
from shared.kube.quantity import milli, value
from shared.kube.slo_config import ColocationStrategy

CPU, MEMORY = "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"

STATIC = "static"


class Mid(NamedTuple):
    """Mid resources of a node: milli-cores and bytes, and what led there.

    Attributes:
        base: predicted to be reclaimable and in fact not used; 0 in static mode.
        unallocated: not asked for by prod pods; 0 in static mode.
        limit: at most this much.
    """

    cpu: int
    memory: int
    base: tuple[int, int]
    unallocated: tuple[int, int]
    limit: tuple[int, int]


def mid_of(capacity: Amount, reserved: Amount, measured: Measured, books: Books, of: ColocationStrategy) -> Mid:
    """A node's mid resources.

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
        return Mid(min(cpu, limit[0]), min(memory, limit[1]), (0, 0), (0, 0), limit)
    unused = capacity.minus(measured.node) if measured.node is not None else ZERO
    base = (
        max(min(milli(measured.reclaimable.cpu), milli(unused.cpu)), 0),
        max(min(value(measured.reclaimable.memory), value(unused.memory)), 0),
    )
    unallocated = (0, 0)
    if percent := _or(of.mid_unallocated_percent, 0):
        system = measured.system.plus(measured.applications_above(MID_BAND)).largest(reserved)
        free = capacity.minus(system).minus(books.prod_request).not_negative()
        unallocated = _share(milli(free.cpu), percent), _share(value(free.memory), percent)
    return Mid(
        min(base[0] + unallocated[0], limit[0]), min(base[1] + unallocated[1], limit[1]), base, unallocated, limit
    )


@lru_cache(maxsize=4096)  # a fleet has few sizes of machines
def _shares(capacity: Amount, cpu_percent: int, memory_percent: int) -> tuple[int, int]:
    return _share(milli(capacity.cpu), cpu_percent), _share(value(capacity.memory), memory_percent)


def _or(stated: int | None, default: int) -> int:
    """What is stated, or the default of the strategy: spec/slo-controller.md 2.1."""
    return default if stated is None else stated


def _share(size: int, percent: int) -> int:
    return math.trunc(float(size) * (percent / 100))
