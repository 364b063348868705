"""The target node that a pod would fit on, first come first served: the candidates of a source must each have one.

A pod that fits stays counted on its target for the rest of the cycle, also where it is not evicted: a quirk of upstream
that keeps the targets from being overrun.

Source: spec/descheduler.md 2.8, step 3.
"""

from collections.abc import Sequence
from operator import le

import numpy as np
from numpy.typing import NDArray

from services.descheduler.framework.node_affinity_and_taints import admits
from services.descheduler.load_aware.classification import PODS, ClassifiedPool
from services.descheduler.load_aware.measured_node import Amounts, MeasuredNode, PodOnNode
from services.descheduler.load_aware.thresholds import Ints

ONE_BY_ONE, CHUNK = 4, 256
"""Targets that are compared alone, which is enough for most pods; then so many at once."""

FRONTS = 8
"""Sizes of pods per class for which the first target that may fit is remembered."""

Size = tuple[int, ...]


class TargetFit:
    """The targets of one phase, in order."""

    def __init__(self, pool: ClassifiedPool, rows: Sequence[int], *, prod: bool) -> None:
        self._nodes = [pool.nodes[row] for row in rows]
        self._names = pool.percents.resources
        limits = (pool.thresholds.prod_high if prod else pool.thresholds.high)[rows]
        usage = (pool.prod_usage if prod else pool.usage)[rows, : len(self._names)]
        self._room: Ints = limits - usage  # int64[targets, resources]: what may be added to the usage
        self._free: dict[str, Ints] = {}
        self._admitted: dict[bytes, NDArray[np.bool_]] = {}
        self._fronts: dict[tuple[bytes, tuple[str, ...]], dict[Size, int]] = {}

    def fits(self, pod: PodOnNode, used: Amounts) -> bool:
        """Reports whether a pod with this usage fits on a target, and counts it there."""
        added = tuple([1 if name == PODS else used.get(name, 0) for name in self._names])
        names, amounts = pod.demanded
        size = added + amounts
        # Targets only fill up within a phase: where a pod of no larger size did not fit, this one does not either.
        fronts = self._fronts.setdefault((pod.constraints, names), {})
        start = fronts.pop(size, None)
        if start is None:
            start = max((row for known, row in fronts.items() if all(map(le, known, size))), default=0)
        row = self._first(start, self._admits(pod), added, [self._free_of(name) for name in names], amounts)
        fronts[size] = row
        if len(fronts) > FRONTS:
            del fronts[next(iter(fronts))]
        if row == len(self._nodes):
            return False
        self._room[row] -= added
        return True

    def _first(self, start: int, admitted: NDArray[np.bool_], added: Size, free: Sequence[Ints], requests: Size) -> int:
        """Returns the first target from `start` that a pod fits on; the number of targets for none."""
        end = min(start + ONE_BY_ONE, len(self._nodes))
        for row in range(start, end):
            if (
                admitted[row]
                and all(map(le, added, self._room[row].tolist()))
                and all(map(le, requests, [each[row] for each in free]))
            ):
                return row
        sizes = np.array(added, np.int64)
        for first in range(end, len(self._nodes), CHUNK):
            part = slice(first, first + CHUNK)
            found = admitted[part] & (self._room[part] >= sizes).all(axis=1)
            for each, amount in zip(free, requests, strict=True):
                found &= each[part] >= amount
            if found.any():
                return first + int(found.argmax())
        return len(self._nodes)

    def _admits(self, pod: PodOnNode) -> NDArray[np.bool_]:
        """Returns bool[targets], by labels and taints."""
        found = self._admitted.get(pod.constraints)
        if found is None:
            found = np.array([admits(each.node, pod.pod) for each in self._nodes], np.bool_)
            self._admitted[pod.constraints] = found
        return found

    def _free_of(self, resource: str) -> Ints:
        found = self._free.get(resource)
        if found is None:
            found = self._free[resource] = np.array([free_amount(each, resource) for each in self._nodes], np.int64)
        return found


def free_amount(node: MeasuredNode, resource: str) -> int:
    """Returns what the pods of a node leave unrequested of a resource; negative where they request more."""
    return node.allocatable.get(resource, 0) - node.requested.get(resource, 0)
