"""Terms of filters and scores that are arithmetic alone, as numbers that the kernels evaluate."""

from typing import NamedTuple

import numpy as np

from services.scheduler.kernels.array_types_and_row_selection import Int64


class FitTerm(NamedTuple):
    """Requests that nodes may have insufficient resources for: arguments of `kernels.resources.fit_results`."""

    resources: Int64
    sizes: Int64
    too_small: int


class AllocationTerm(NamedTuple):
    """Allocation of nodes: arguments of `kernels.resources.allocation_scores`, in plain numbers."""

    resources: tuple[int, ...]
    sources: tuple[int, ...]
    requested: tuple[int, ...]
    weights: tuple[int, ...]
    most: bool

    def arrays(self) -> tuple[Int64, Int64, Int64, Int64, bool]:
        """Returns the same as kernels take it."""
        resources, sources, requested, weights = (np.array(values, np.int64) for values in self[:4])
        return resources, sources, requested, weights, self.most


class BalanceTerm(NamedTuple):
    """Balance of the used resources of nodes: arguments of `kernels.resources.balance_scores`."""

    resources: Int64
    requested: Int64


class LoadTerm(NamedTuple):
    """Capacity left free by measured load and the pod: arguments of `kernels.load.load_scores`."""

    allocatable: Int64
    load: Int64
    incoming: Int64
    weights: Int64
    dominant: int
    total_weight: int
    until_ns: Int64
    now_ns: int


ScoreTerm = AllocationTerm | BalanceTerm | LoadTerm
