"""Measured load of nodes: scores and thresholds. Arrays over loads are [resources, nodes]; `rows` and `count` as in
`fit_allocation_balance`.
"""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.kernels.argument_and_result_types import Load
from services.scheduler.kernels.array_types_and_row_selection import TILE, Bools, Int64, Tile, at
from services.scheduler.kernels.fit_allocation_balance import percents
from services.scheduler.kernels.numba_compile import compiled, inlined

Float64 = NDArray[np.float64]


@inlined
def load_tile(score: Float64, share: Float64, least: Float64, tile: Tile, term: Load) -> None:
    """Computes `load_scores` of a tile.

    Args:
        score: [tile], written to: whole numbers; share, least: [tile], working memory.
    """
    for place in range(len(score)):
        score[place], least[place] = 0.0, 100.0
    for resource in range(len(term.weights)):
        weight = np.float64(term.weights[resource])
        capacity, used = at(term.allocatable[resource], tile), at(term.load[resource], tile)
        percents(share, capacity, used, term.incoming[resource], False)  # noqa: FBT003
        for place in range(len(score)):
            score[place] += share[place] * weight
            least[place] = min(least[place], share[place])
    until = at(term.until_ns, tile)
    by_least, inverse = np.float64(term.dominant), 1.0 / np.float64(term.total_weight)
    for place in range(len(score)):
        mean = np.trunc((score[place] + least[place] * by_least + 0.5) * inverse)  # as in `allocation_tile`
        score[place] = min(mean, 100.0) if until[place] > term.now_ns else 0.0


@compiled(
    "int64[::1](int64[::1], int64, int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64, int64, int64[::1], int64)"
)
def load_scores(
    rows: Int64,
    count: int,
    allocatable: Int64,
    load: Int64,
    incoming: Int64,
    weights: Int64,
    dominant: int,
    total_weight: int,
    until_ns: Int64,
    now_ns: int,
) -> Int64:
    """Scores nodes by the capacity that their load and the pod leave free.

        free  = floor( 100 * (allocatable - load - incoming) / allocatable ), at least 0; 0 where allocatable is 0
        score = min( floor( (sum of weight * free + dominant * least free) / total weight ), 100 )

    Args:
        until_ns: [nodes]: the time from which on a node has no score, since its report is expired.

    Returns:
        [count], 0..100.
    """
    scores = np.empty(count, np.int64)
    size = min(count, TILE)
    found, shares, lowest = np.empty(size), np.empty(size), np.empty(size)
    term = Load(0, 1, allocatable, load, incoming, weights, dominant, total_weight, until_ns, now_ns)
    for start in range(0, count, TILE):
        stop = min(count - start, TILE)
        score, share, least = found[:stop], shares[:stop], lowest[:stop]
        load_tile(score, share, least, Tile(rows, count, start), term)
        for place in range(stop):
            scores[start + place] = np.int64(score[place])
    return scores


@compiled(
    "int64[::1](int64[::1], int64, int64[:, ::1], int64[:, ::1], boolean[::1], boolean, int64[::1], int64[:, ::1], float64[:, ::1])"
)
def exceeded_limits(
    rows: Int64,
    count: int,
    load: Int64,
    prod_load: Int64,
    prod_mode: Bools,
    is_prod: bool,
    incoming: Int64,
    divisor: Int64,
    limits: Float64,
) -> Int64:
    """Returns the first resource of a node whose use would exceed its limit: its number + 1, 0 for none.

        share = (load + incoming) / divisor * 100, exceeded where share >= limit

    Args:
        prod_load: counts in place of `load` for a prod pod, on nodes in `prod_mode`.

    Returns:
        [count].
    """
    first = np.zeros(count, np.int64)
    for place in range(count):
        row = rows[place] if len(rows) == count else place
        as_prod = is_prod and prod_mode[row]
        for resource in range(len(incoming)):
            used = (prod_load[resource, row] if as_prod else load[resource, row]) + incoming[resource]
            if used / divisor[resource, row] * 100.0 >= limits[resource, row]:
                first[place] = resource + 1
                break
    return first
