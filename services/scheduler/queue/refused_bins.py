"""Refused pods whose backoff is over, by the events that may end their reasons: bins, and the pools of one class in them."""

from heapq import heappush
from typing import NamedTuple

from services.scheduler.queue.active_queue import Entry
from services.scheduler.state.pod_attempts_and_refusals import PluginReason
from services.scheduler.state.pod_equivalence_class import PodClass


class BinKey(NamedTuple):
    """Key of a bin of refused pods: profile, reasons, and the positions of the cycle that refused them.

    Attributes:
        saw: position of `cluster`.
        saw_released: of the last PlacementReleased in `scheduling`.
        saw_reports: of `metrics-*`, by name; None when no report can end the reasons.
    """

    scheduler: str
    reasons: tuple[PluginReason, ...]
    saw: int
    saw_released: int
    saw_reports: tuple[tuple[str, int], ...] | None = None


class PoolKey(NamedTuple):
    """One class of a bin."""

    bin: BinKey
    pod_class: PodClass


class Pool:
    """The pods of one class in a bin: their number, and a heap in their order."""

    __slots__ = ("heap", "pods")

    def __init__(self) -> None:
        self.pods = 0
        self.heap: list[Entry] = []


class Bin:
    """Pods that the same events requeue: in one order, and by class, since an exact evaluation may rule out a class."""

    __slots__ = ("heap", "pools")

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        self.pools: dict[PodClass, Pool] = {}

    def enter(self, pod_class: PodClass, entry: Entry) -> None:
        """Adds a pod of a class."""
        heappush(self.heap, entry)
        pool = self.pools.setdefault(pod_class, Pool())
        heappush(pool.heap, entry)
        pool.pods += 1

    def leave(self, pod_class: PodClass) -> None:
        """Counts a pod of a class no longer; its entries stay in the heaps."""
        pool = self.pools[pod_class]
        pool.pods -= 1
        if not pool.pods:
            del self.pools[pod_class]
