"""Mid resources: what prod pods have asked for and are predicted not to need, to be sold to mid pods.

Source: spec/slo-controller.md 5; upstream pkg/slo-controller/noderesource/plugins/midresource.
"""

import math
from typing import NamedTuple

from services.slo_controller.books import Books
from services.slo_controller.measured import MID_BAND, Measured
from services.slo_controller.strategy import DEFAULTS
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
    whole = milli(capacity.cpu), value(capacity.memory)
    limit = (
        _share(whole[0], _percent(of, "mid_cpu_threshold_percent")),
        _share(whole[1], _percent(of, "mid_memory_threshold_percent")),
    )
    if of.mid_reclaim_mode == STATIC:
        cpu = _share(whole[0], _percent(of, "mid_static_cpu_reserved_percent"))
        memory = _share(whole[1], _percent(of, "mid_static_memory_reserved_percent"))
        return Mid(min(cpu, limit[0]), min(memory, limit[1]), (0, 0), (0, 0), limit)
    system = measured.system.plus(measured.applications_above(MID_BAND)).largest(reserved)
    free = capacity.minus(system).minus(books.prod_request).not_negative()
    unused = capacity.minus(measured.node) if measured.node is not None else ZERO
    base = (
        max(min(milli(measured.reclaimable.cpu), milli(unused.cpu)), 0),
        max(min(value(measured.reclaimable.memory), value(unused.memory)), 0),
    )
    percent = _percent(of, "mid_unallocated_percent")
    unallocated = _share(milli(free.cpu), percent), _share(value(free.memory), percent)
    return Mid(
        min(base[0] + unallocated[0], limit[0]), min(base[1] + unallocated[1], limit[1]), base, unallocated, limit
    )


def _share(size: int, percent: int) -> int:
    return math.trunc(float(size) * (percent / 100))


def _percent(strategy: ColocationStrategy, name: str) -> int:
    stated = getattr(strategy, name)
    found: int = getattr(DEFAULTS, name) if stated is None else stated
    return found
