"""What plugins say of nodes by arithmetic alone, as numbers: what these mean is said in `kernels/`, where it is worked out."""

from typing import NamedTuple

import numpy as np

from services.scheduler.kernels.tiles import Int64


class FitTerm(NamedTuple):
    """What nodes may be short of: the arguments of `kernels.snapshot.shortages`."""

    resources: Int64
    sizes: Int64
    too_small: int


class AllocationTerm(NamedTuple):
    """How full nodes would be: the arguments of `kernels.snapshot.filled`, those over resources in plain numbers."""

    resources: tuple[int, ...]
    sources: tuple[int, ...]
    requested: tuple[int, ...]
    weights: tuple[int, ...]
    most: bool

    def arrays(self) -> tuple[Int64, Int64, Int64, Int64, bool]:
        """The same as compiled passes take it."""
        resources, sources, requested, weights = (np.array(values, np.int64) for values in self[:4])
        return resources, sources, requested, weights, self.most


class BalanceTerm(NamedTuple):
    """How evenly the resources of nodes would be used: the arguments of `kernels.snapshot.evenness`."""

    resources: Int64
    requested: Int64


class LoadTerm(NamedTuple):
    """What of nodes a pod would leave, by measured load: the arguments of `kernels.load.left`."""

    allocatable: Int64
    load: Int64
    incoming: Int64
    weights: Int64
    dominant: int
    total_weight: int
    until_ns: Int64
    now_ns: int


ScoreTerm = AllocationTerm | BalanceTerm | LoadTerm
