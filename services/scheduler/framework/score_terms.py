"""Filters and scores of plugins as numbers for the fused kernels; `kernels/` documents and computes the formulas."""

from typing import NamedTuple

import numpy as np

from services.scheduler.kernels.tiles import Int64


class FitTerm(NamedTuple):
    """Requests of a class that must fit: the arguments of `kernels.resources.shortages`."""

    resources: Int64
    sizes: Int64
    too_small: int


class AllocationTerm(NamedTuple):
    """Allocation of nodes: the arguments of `kernels.resources.filled`, those over resources in plain numbers."""

    resources: tuple[int, ...]
    sources: tuple[int, ...]
    requested: tuple[int, ...]
    weights: tuple[int, ...]
    most: bool

    def arrays(self) -> tuple[Int64, Int64, Int64, Int64, bool]:
        """The term as arrays, for compiled passes."""
        resources, sources, requested, weights = (np.array(values, np.int64) for values in self[:4])
        return resources, sources, requested, weights, self.most


class BalanceTerm(NamedTuple):
    """Balance of the resources of nodes: the arguments of `kernels.resources.evenness`."""

    resources: Int64
    requested: Int64


class LoadTerm(NamedTuple):
    """Capacity that a pod would leave, by measured load: the arguments of `kernels.load.left`."""

    allocatable: Int64
    load: Int64
    incoming: Int64
    weights: Int64
    dominant: int
    total_weight: int
    until_ns: Int64
    now_ns: int


ScoreTerm = AllocationTerm | BalanceTerm | LoadTerm
