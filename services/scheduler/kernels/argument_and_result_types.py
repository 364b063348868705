"""Groups of kernel arguments, as named tuples and as numba types. Arrays over amounts are [resources, nodes]."""

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from services.scheduler.kernels.array_types_and_row_selection import Int64

UInt64 = NDArray[np.uint64]

types: Any = numba.types  # numba is untyped
INT = types.int64
VECTOR = types.int64[::1]
MATRIX = types.int64[:, ::1]
CUBE = types.int64[:, :, ::1]
HASHES = types.uint64[::1]


class NodeAmounts(NamedTuple):
    """Capacity and counts of all nodes.

    Attributes:
        pods, allowed_pods: [nodes].
        allocatable, requested: [resources, nodes]; `requested` may have fewer resources.
        nonzero_requested: [2, nodes]: cpu and memory as scores count them.
    """

    pods: Int64
    allowed_pods: Int64
    allocatable: Int64
    requested: Int64
    nonzero_requested: Int64


NODE_AMOUNTS = types.NamedTuple((VECTOR, VECTOR, MATRIX, MATRIX, MATRIX), NodeAmounts)


class Fit(NamedTuple):
    """The fit filter of a class.

    Attributes:
        filter_index: of the filter in the profile; below 0 for no fit filter.
        resources, sizes, too_small: as `fit_allocation_balance.fit_results` takes them.
    """

    filter_index: int
    resources: Int64
    sizes: Int64
    too_small: int


FIT = types.NamedTuple((INT, VECTOR, VECTOR, INT), Fit)


class Allocation(NamedTuple):
    """The allocation terms of a class.

    Attributes:
        terms: [terms, 5]: place among all terms, weight, first and last + 1 of its columns below, 1 for `most`.
        columns: [4, columns]: resources, sources, requests and weights, as `fit_allocation_balance.allocation_scores`
            takes them.
    """

    terms: Int64
    columns: Int64


ALLOCATION = types.NamedUniTuple(MATRIX, 2, Allocation)


class Balance(NamedTuple):
    """The balance term of a class.

    Attributes:
        place, weight: among all terms; weight 0 for no term.
        resources, requests: as `fit_allocation_balance.balance_scores` takes them.
    """

    place: int
    weight: int
    resources: Int64
    requests: Int64


BALANCE = types.NamedTuple((INT, INT, VECTOR, VECTOR), Balance)


class Load(NamedTuple):
    """The load term of a class.

    Attributes:
        place, weight: among all terms; weight 0 for no term.
        allocatable, load, incoming, weights, dominant, total_weight, until_ns, now_ns: as `load.load_scores` takes
            them.
    """

    place: int
    weight: int
    allocatable: Int64
    load: Int64
    incoming: Int64
    weights: Int64
    dominant: int
    total_weight: int
    until_ns: Int64
    now_ns: int


LOAD = types.NamedTuple((INT, INT, MATRIX, MATRIX, VECTOR, VECTOR, INT, INT, VECTOR, INT), Load)


class Outcome(NamedTuple):
    """Outputs of a fused evaluation of `count` nodes.

    Attributes:
        by, result: [count]: index and result of the rejecting filter; `by` is also read: FEASIBLE where no filter
            rejects.
        total: [count]: sum of the weighted scores; -1 where `by` is not FEASIBLE.
        shares: [terms, count]: the weighted score of each term; or [0, 0] when it is not needed.
    """

    by: Int64
    result: Int64
    total: Int64
    shares: Int64


OUTCOME = types.NamedTuple((VECTOR, VECTOR, VECTOR, MATRIX), Outcome)


class PodBatch(NamedTuple):
    """Pods to place one after the other, with the amounts in which their classes differ; the first axis is the pod.

    Attributes:
        hashes: [pods], of their uids.
        columns: rows of `requested` in which a pod counts; amounts: [pods, columns], how much of each.
        nonzero_assigned: [pods, 2]: how much a pod counts in `nonzero_requested`.
        fit_sizes, allocation_requests, balance_requests, load_incoming: [pods, ...]: in place of those of the terms.
    """

    hashes: UInt64
    columns: Int64
    amounts: Int64
    nonzero_assigned: Int64
    fit_sizes: Int64
    allocation_requests: Int64
    balance_requests: Int64
    load_incoming: Int64


POD_BATCH = types.NamedTuple((HASHES, VECTOR, MATRIX, MATRIX, MATRIX, MATRIX, MATRIX, MATRIX), PodBatch)


class BatchOutcome(NamedTuple):
    """Outputs of a batch.

    Attributes:
        rows, totals: [pods, best]: the best nodes for each pod, -1 where there are fewer, and their totals.
        shares: [pods, terms, best]: the weighted score of each term.
        kinds, counts: [pods, kinds]: distinct results of the fit filter, and how many nodes each rejects; 0 where there
            are fewer.
    """

    rows: Int64
    totals: Int64
    shares: Int64
    kinds: Int64
    counts: Int64


BATCH_OUTCOME = types.NamedTuple((MATRIX, MATRIX, CUBE, MATRIX, MATRIX), BatchOutcome)
