"""Chooses GPUs of a node by their partitions and by their places: close to each other, and where others are in use.

Source: spec/scheduler-workloads.md 3.5; upstream pkg/scheduler/plugins/deviceshare/{allocator_gpu,
gpu_topology_scope,gpu_partition}.go.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.device_share.device_usage import DeviceView, fits
from services.scheduler.plugins.device_share.devices_of_node import Minors, Partition, PartitionTable
from services.scheduler.plugins.device_share.pod_device_requests import DeviceRequests, GpuRequest, PartitionWish
from services.scheduler.plugins.helper.rejections import Rejection
from shared.kube.device import GPU

_LEVELS = {"Node": 1, "NUMANode": 2, "PCIe": 3, "Device": 4}
_WEIGHTS = {8: 10_000, 4: 100, 2: 1}
_ANY = PartitionWish(restricted=False, bandwidth=0)


class GpuChoice(NamedTuple):
    """The terms of a choice.

    Attributes:
        score: minor -> its score for a part of it.
        has_template: the request equals one template, so that no partition is needed.
    """

    score: Callable[[int], int]
    has_template: bool


def choose_gpus(view: DeviceView, requests: DeviceRequests, choice: GpuChoice) -> Minors | Rejection | None:
    """Chooses GPUs by a partition, or by their places; None where neither says anything."""
    gpu = requests.gpu
    assert gpu is not None, "requests of GPUs have been read"
    if not choice.has_template:
        honors = requests.partition is not None or view.devices.honors
        chosen = _partition(view, gpu, requests.partition or _ANY)
        if chosen is not None and (honors or not isinstance(chosen, Rejection)):
            return chosen
    return _by_place(view, requests, gpu, choice.score)


# partitions


def _partition(view: DeviceView, gpu: GpuRequest, wish: PartitionWish) -> Minors | Rejection | None:
    if gpu.shared:
        return None
    table = view.devices.table
    if table is None:
        return Rejection((Reason("PartitionTableMissing"),), unresolvable=True)
    if gpu.number not in table:
        return Rejection((Reason("GpuCountUnsupported"),), unresolvable=True)
    total, in_use = view.total.get(GPU, {}), view.in_use.get(GPU, frozenset())
    for group in _groups(table[gpu.number]):
        feasible = [
            each
            for each in group
            if each.bandwidth >= wish.bandwidth and all(total.get(m) and m not in in_use for m in each.minors)
        ]
        if feasible:
            return max(feasible, key=lambda each: _left_over(table, gpu.number, in_use | set(each.minors))).minors
        if wish.restricted:
            break
    return Rejection((Reason("InsufficientPartitionedGpus"),))


def _groups(partitions: Iterable[Partition]) -> list[list[Partition]]:
    """Partitions by their score, lower ones first."""
    groups: dict[int, list[Partition]] = {}
    for each in partitions:
        groups.setdefault(each.score, []).append(each)
    return [group for _, group in sorted(groups.items())]


def _left_over(table: PartitionTable, count: int, taken: frozenset[int] | set[int]) -> int:
    """The value of the partitions that stay whole; large ones count most."""
    return sum(
        weight * sum(each.score for each in _groups(table[size])[0] if taken.isdisjoint(each.minors))
        for size, weight in _WEIGHTS.items()
        if size >= count and table.get(size)
    )


# places


class _Found(NamedTuple):
    minors: Minors
    depth: int
    crowded: int


def _by_place(
    view: DeviceView, requests: DeviceRequests, gpu: GpuRequest, score: Callable[[int], int]
) -> Minors | Rejection | None:
    scope = requests.wish(GPU).scope
    switches = view.devices.switches
    if switches is None or (gpu.shared and gpu.number > 1):
        if not scope:
            return None
        code = "MultiSharedGpu" if switches is not None else "GpuTopologyMissing"
        return Rejection((Reason(code),), unresolvable=True)
    search = _Search(view, gpu, score, _LEVELS.get(scope, 0))
    found = search.below_node(switches)
    if found is not None:
        return found.minors
    return Rejection((Reason("InsufficientScopedGpus" if scope else "InsufficientGpus"),))


class _Search:
    """The deepest part of a node with enough free GPUs, and of these one with GPUs in use."""

    def __init__(self, view: DeviceView, gpu: GpuRequest, score: Callable[[int], int], level: int) -> None:
        self._gpu, self._score, self._level = gpu, score, level
        total, free = view.total.get(GPU, {}), view.free.get(GPU, {})
        self._in_use = view.in_use.get(GPU, frozenset())
        self._there = frozenset(total)
        self._free = frozenset(minor for minor in total if total[minor] and fits(gpu.each, free[minor]))

    def below_node(self, switches: Sequence[tuple[Minors, tuple[Minors, ...]]]) -> _Found | None:
        every = tuple(sorted(minor for minors, _ in switches for minor in minors))
        if len(self._those(every)) < self._gpu.number:
            return None
        crowded = self._crowded(every, 0)
        return self._best([self._below_numa(minors, below, crowded) for minors, below in switches]) or self._leaf(
            every, 1, crowded, 1
        )

    def _below_numa(self, minors: Minors, below: Sequence[Minors], crowded: int) -> _Found | None:
        if len(self._those(minors)) < self._gpu.number:
            return None
        crowded = self._crowded(minors, crowded)
        found = [self._leaf(each, 3, self._crowded(each, crowded), 3) for each in below]
        return self._best(found) or self._leaf(minors, 2, crowded, 2)

    def _leaf(self, minors: Minors, level: int, crowded: int, depth: int) -> _Found | None:
        if self._level > level or len(self._those(minors)) < self._gpu.number:
            return None
        free = [minor for minor in minors if minor in self._free]
        if len(free) < self._gpu.number:
            return None
        if self._gpu.shared:
            return _Found((max(free, key=self._score),), depth, crowded)
        return _Found(tuple(free[: self._gpu.number]), depth, crowded)

    def _those(self, minors: Minors) -> Minors:
        return tuple(minor for minor in minors if minor in self._there)

    def _crowded(self, minors: Minors, above: int) -> int:
        return above + (not self._in_use.isdisjoint(minors))

    def _best(self, found: Iterable[_Found | None]) -> _Found | None:
        best: _Found | None = None
        for each in found:
            if each is not None and (best is None or self._rank(each) > self._rank(best)):
                best = each
        return best

    def _rank(self, found: _Found) -> tuple[int, int, int]:
        return found.depth, found.crowded, self._score(found.minors[0]) if self._gpu.shared else 0
