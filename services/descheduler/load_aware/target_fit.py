"""Which target node a pod would fit on, first come first served: the candidates of a source must each have one.

A pod that fits stays counted on its target for the rest of the cycle, also where it is not evicted: a quirk of upstream
that keeps the targets from being overrun.

Source: spec/descheduler.md 2.8, step 3.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.descheduler.framework.node_fit import admits
from services.descheduler.load_aware.classification import PODS, ClassifiedPool
from services.descheduler.load_aware.measured_node import Amounts, MeasuredNode, PodOnNode
from services.descheduler.load_aware.thresholds import Ints

CHUNK = 128
"""Targets that are compared at once."""


class TargetFit:
    """The targets of one phase, in order.

    Attributes:
        usage: int64[targets, resources], with the pods that were counted here.
    """

    def __init__(self, pool: ClassifiedPool, rows: Sequence[int], *, prod: bool) -> None:
        self._nodes = [pool.nodes[row] for row in rows]
        self._names = pool.percents.resources
        width = len(self._names)
        self._limit: Ints = (pool.thresholds.prod_high if prod else pool.thresholds.high)[rows]
        self.usage: Ints = (pool.prod_usage if prod else pool.usage)[rows, :width].copy()
        self._free: dict[str, Ints] = {}
        self._admitted: dict[int, NDArray[np.bool_]] = {}

    def fits(self, pod: PodOnNode, used: Amounts) -> bool:
        """Reports whether a pod with this usage fits on a target, and counts it there."""
        added = np.array([1 if name == PODS else used.get(name, 0) for name in self._names], np.int64)
        admitted = self._admits(pod)
        requests = [(self._free_of(name), amount) for name, amount in pod.requests.items() if amount > 0]
        for start in range(0, len(self._nodes), CHUNK):
            part = slice(start, start + CHUNK)
            found = admitted[part] & (self.usage[part] + added <= self._limit[part]).all(axis=1)
            for free, amount in requests:
                found &= free[part] >= amount
            if found.any():
                self.usage[start + int(found.argmax())] += added
                return True
        return False

    def _admits(self, pod: PodOnNode) -> NDArray[np.bool_]:
        """Returns bool[targets]; pods of one workload share their spec, and with it the answer."""
        key = id(pod.pod.spec)
        if key not in self._admitted:
            self._admitted[key] = np.array([admits(each.node, pod.pod) for each in self._nodes], np.bool_)
        return self._admitted[key]

    def _free_of(self, resource: str) -> Ints:
        if resource not in self._free:
            self._free[resource] = np.array([free_amount(each, resource) for each in self._nodes], np.int64)
        return self._free[resource]


def free_amount(node: MeasuredNode, resource: str) -> int:
    """Returns what the pods of a node leave unrequested of a resource; negative where they request more."""
    return node.allocatable.get(resource, 0) - sum(each.requests.get(resource, 0) for each in node.pods)
