"""Measured load on nodes. Arrays over loads are [resources, nodes]; nodes are named as in `room`."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.kernels.compiled import Number, compiled, part
from services.scheduler.kernels.resources import percents
from services.scheduler.kernels.tiles import TILE, Bools, Int64, at

Float64 = NDArray[np.float64]


@part
def leaves(
    score: Float64,
    share: Float64,
    least: Float64,
    rows: Int64,
    count: Number,
    start: Number,
    allocatable: Int64,
    load: Int64,
    incoming: Int64,
    weights: Int64,
    dominant: Number,
    total_weight: Number,
    until_ns: Int64,
    now_ns: Number,
) -> None:
    """`left` of a tile.

    Args:
        score: [tile], written to: whole numbers; share, least: [tile], to work with.
    """
    for place in range(len(score)):
        score[place], least[place] = 0.0, 100.0
    for resource in range(len(weights)):
        weight = np.float64(weights[resource])
        capacity, used = at(allocatable[resource], rows, count, start), at(load[resource], rows, count, start)
        percents(share, capacity, used, incoming[resource], False)  # noqa: FBT003
        for place in range(len(score)):
            score[place] += share[place] * weight
            least[place] = min(least[place], share[place])
    until = at(until_ns, rows, count, start)
    by_least, inverse = np.float64(dominant), 1.0 / np.float64(total_weight)
    for place in range(len(score)):
        mean = np.trunc((score[place] + least[place] * by_least + 0.5) * inverse)  # as in `room.fullness`
        score[place] = mean if until[place] > now_ns else 0.0


@compiled(
    "int64[::1](int64[::1], int64, int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64, int64, int64[::1], int64)"
)
def left(
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
    """What a pod would leave of each node.

        room  = floor( 100 * (allocatable - load - incoming) / allocatable ), at least 0; 0 where allocatable is 0
        score = floor( (sum of weight * room + dominant * least room) / total weight )

    Args:
        until_ns: from when on a node has no score.

    Returns:
        [count], 0..100.
    """
    scores = np.empty(count, np.int64)
    size = min(count, TILE)
    found, shares, lowest = np.empty(size), np.empty(size), np.empty(size)
    weighed = weights, dominant, total_weight
    for start in range(0, count, TILE):
        stop = min(count - start, TILE)
        score, share, least = found[:stop], shares[:stop], lowest[:stop]
        leaves(score, share, least, rows, count, start, allocatable, load, incoming, *weighed, until_ns, now_ns)
        for place in range(stop):
            scores[start + place] = np.int64(score[place])
    return scores


@compiled(
    "int64[::1](int64[::1], int64, int64[:, ::1], int64[:, ::1], boolean[::1], boolean, int64[::1], int64[:, ::1], float64[:, ::1])"
)
def exceeded(
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
    """The first resource of which a node would have more in use than its limit: its number + 1, 0 for none.

        share = (load + incoming) / divisor * 100, exceeded where share >= limit

    Args:
        prod_load: what counts instead of `load` for a prod pod, on nodes in `prod_mode`.

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
