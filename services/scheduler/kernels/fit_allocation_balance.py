"""Resources of nodes: insufficient ones, and scores by allocation and balance.

Arrays over amounts are [resources, nodes]: one row a resource. The nodes to evaluate, `rows` and `count`, are what
`array_types_and_row_selection.selected` returns. Loops run along nodes, one resource after the other, so that they
become vector instructions.
"""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.kernels.argument_and_result_types import NodeAmounts
from services.scheduler.kernels.array_types_and_row_selection import TILE, Bools, Int64, Tile, at
from services.scheduler.kernels.numba_compile import Number, compiled, inlined, part

Float64 = NDArray[np.float64]


_EXACT = (1 << 53) // 100
"""100 times a whole number up to this is exact as a float."""


@inlined
def percent(part: Number, whole: Number) -> Number:
    """Returns floor(100 * part / whole), exact while the percent is below 2^51; part not negative, whole above 0.

    Integers divide at a tenth of the speed of floats. A float quotient is off by less than one; its remainder corrects
    it.
    """
    product = part * 100
    quotient = np.int64(product / whole)
    rest = product - quotient * whole
    return quotient + (rest >= whole) - (rest < 0)


@part
def percents(share: Float64, capacity: Int64, used: Int64, extra: Number, most: Number) -> None:
    """Writes the free share of each node after `extra` more, or the used share if `most`, in percent rounded down.

        part    = min( used + extra, capacity ) if most, else capacity - used - extra; at least 0
        percent = floor( 100 * part / capacity ), 0 without capacity

    Up to 100 * part = 2^53 the quotient of floats is exact: a quotient below a whole number is below it by at least
    1/capacity, and rounding moves it by at most 100 * part / capacity * 2^-53, which is less.

    Args:
        share: [tile], written to: whole numbers.
    """
    largest = _EXACT
    for place in range(len(share)):
        whole = capacity[place]
        part = max(min(used[place] + extra, whole) if most else whole - used[place] - extra, 0)
        part = part if whole > 0 else 0
        largest = max(largest, part)
        share[place] = np.trunc(np.float64(part) * 100.0 / np.float64(max(whole, 1)))
    if largest > _EXACT:
        for place in range(len(share)):
            whole = capacity[place]
            part = max(min(used[place] + extra, whole) if most else whole - used[place] - extra, 0)
            share[place] = percent(part, whole) if whole > 0 else 0


@inlined
def fit_tile(short: Int64, tile: Tile, nodes: NodeAmounts, resources: Int64, sizes: Int64, too_small: Number) -> None:
    """Computes `fit_results` of a tile. short: [tile], written to."""
    running, allowed = at(nodes.pods, tile), at(nodes.allowed_pods, tile)
    for place in range(len(short)):
        short[place] = running[place] >= allowed[place]
    for number in range(len(resources)):
        resource, size, bit = resources[number], sizes[number], np.int64(2) << number
        if resource >= nodes.requested.shape[0]:
            for place in range(len(short)):
                short[place] |= bit | too_small
            continue
        capacity, taken = at(nodes.allocatable[resource], tile), at(nodes.requested[resource], tile)
        for place in range(len(short)):
            lacks = bit if capacity[place] - taken[place] < size else 0
            short[place] |= lacks | (too_small if capacity[place] < size else 0)


@compiled(
    "int64[::1](int64[::1], int64, int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64)"
)
def fit_results(
    rows: Int64,
    count: int,
    pods: Int64,
    allowed_pods: Int64,
    allocatable: Int64,
    requested: Int64,
    resources: Int64,
    sizes: Int64,
    too_small: int,
) -> Int64:
    """Returns the insufficient resources of each node.

    Args:
        resources, sizes: the requests, by the row of the resource; a row beyond `requested` is a resource that no node
            has.
        too_small: the bit for a node that is too small even when empty.

    Returns:
        [count]: bit 0 for too many pods, bit i + 1 for the i-th resource, and `too_small`; 0 for a node that fits.
    """
    results = np.empty(count, np.int64)
    nodes = NodeAmounts(pods, allowed_pods, allocatable, requested, requested)  # the last is not read
    for start in range(0, count, TILE):
        short = results[start : start + TILE]
        fit_tile(short, Tile(rows, count, start), nodes, resources, sizes, too_small)
    return results


@inlined
def allocation_tile(
    score: Float64,
    share: Float64,
    weight: Float64,
    tile: Tile,
    nodes: NodeAmounts,
    columns: tuple[Int64, Int64, Int64, Int64],
    most: Number,
) -> None:
    """Computes `allocation_scores` of a tile.

    Weighted sums stay below 2^26, where half a unit above the sum keeps a quotient away from whole numbers by more than
    rounding moves it: so nodes that have all of the resources need no division.

    Args:
        score: [tile], written to: whole numbers; share, weight: [tile], working memory.
        columns: resources, sources, requests and weights.
    """
    resources, sources, requests, weights = columns
    for place in range(len(score)):
        score[place] = 0.0
    whole, lacking = 0.0, np.int64(0)
    for number in range(len(resources)):
        resource, source, each = resources[number], sources[number], np.float64(weights[number])
        if resource < 0:
            continue
        whole += each
        capacity = at(nodes.allocatable[resource], tile)
        used = at(nodes.requested[resource] if source < 0 else nodes.nonzero_requested[source], tile)
        percents(share, capacity, used, requests[number], most)
        for place in range(len(score)):
            score[place] += share[place] * each
            lacking |= capacity[place] <= 0
    if not lacking:
        inverse = 1.0 / max(whole, 1.0)
        for place in range(len(score)):
            score[place] = np.trunc((score[place] + 0.5) * inverse)
        return
    for place in range(len(score)):
        weight[place] = 0.0
    for number in range(len(resources)):
        if resources[number] >= 0:
            capacity, each = at(nodes.allocatable[resources[number]], tile), np.float64(weights[number])
            for place in range(len(score)):
                weight[place] += each if capacity[place] > 0 else 0.0
    for place in range(len(score)):
        score[place] = np.trunc(score[place] / max(weight[place], 1.0))


_FILL = "int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64[::1], int64[::1]"


@compiled(f"int64[::1](int64[::1], int64, {_FILL}, boolean)")
def allocation_scores(
    rows: Int64,
    count: int,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    resources: Int64,
    sources: Int64,
    requests: Int64,
    weights: Int64,
    most: bool,
) -> Int64:
    """Scores nodes by allocated resources: a weighted mean of percents over the resources that a node has.

        part  = 100 * (allocatable - used - request) / allocatable, at least 0     (least)
                100 * min(used + request, allocatable) / allocatable               (most)
        score = floor( sum of weight * floor(part) / sum of weights ), 0 without any such resource

    Args:
        resources: rows of `allocatable`; -1 for a resource that does not count.
        sources: the array of `used`: -1 for `requested`, else this row of `nonzero_requested`.
        requests, weights: of each resource.

    Returns:
        [count], 0..100.
    """
    scores = np.empty(count, np.int64)
    size = min(count, TILE)
    found, shares, weighed = np.empty(size), np.empty(size), np.empty(size)
    nodes = NodeAmounts(resources, resources, allocatable, requested, nonzero_requested)  # the first two are not read
    columns = resources, sources, requests, weights
    for start in range(0, count, TILE):
        stop = min(count - start, TILE)
        score, share, weight = found[:stop], shares[:stop], weighed[:stop]
        allocation_tile(score, share, weight, Tile(rows, count, start), nodes, columns, most)
        for place in range(stop):
            scores[start + place] = np.int64(score[place])
    return scores


@compiled(f"int64[::1](int64[::1], int64, {_FILL}, int64[::1], int64[::1])")
def capacity_ratio_scores(
    rows: Int64,
    count: int,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    resources: Int64,
    sources: Int64,
    requests: Int64,
    weights: Int64,
    shape_at: Int64,
    shape: Int64,
) -> Int64:
    """Scores nodes by a piecewise linear function of their allocation; a resource counts where that is above 0.

    Args:
        resources, sources, requests, weights: as in `allocation_scores`.
        shape_at, shape: the function's points, percents ascending.

    Returns:
        [count], 0..100: the weighted mean, halves rounded up.
    """
    scores = np.empty(count, np.int64)
    for place in range(count):
        row = rows[place] if len(rows) == count else place
        total = weight = 0
        for number in range(len(resources)):
            resource, source = resources[number], sources[number]
            capacity = allocatable[resource, row] if resource >= 0 else 0
            if capacity <= 0:
                continue
            used = requested[resource, row] if source < 0 else nonzero_requested[source, row]
            percents = percent(min(used + requests[number], capacity), capacity)
            part = shape[-1]
            for point in range(len(shape)):
                if percents <= shape_at[point]:
                    part = shape[point]
                    if point > 0:
                        rise = (shape[point] - shape[point - 1]) * (percents - shape_at[point - 1])
                        step = abs(rise) // (shape_at[point] - shape_at[point - 1])  # truncated toward zero
                        part = shape[point - 1] + (step if rise >= 0 else -step)
                    break
            if part > 0:
                total += part * weights[number]
                weight += weights[number]
        scores[place] = np.int64(np.floor(total / max(weight, 1) + 0.5))
    return scores


@inlined
def _deviation(fractions: Float64, there: Bools, total: float, number: float) -> float:
    """Returns half the difference of two fractions; of more their standard deviation."""
    mean, squares = total / number, 0.0
    last = second = 0.0
    for index in range(len(fractions)):
        if there[index]:
            squares += (fractions[index] - mean) * (fractions[index] - mean)
            last, second = second, fractions[index]
    return abs((last - second) / 2) if number == 2 else np.sqrt(squares / number)


@inlined
def _balance_of_two(
    score: Float64, tile: Tile, allocatable: Int64, requested: Int64, resources: Int64, requests: Int64
) -> None:
    """Computes `balance_scores` of a tile for two resources, where the standard deviation is half the difference."""
    first, second = at(allocatable[resources[0]], tile), at(allocatable[resources[1]], tile)
    of_first, of_second = at(requested[resources[0]], tile), at(requested[resources[1]], tile)
    for place in range(len(score)):
        one = min((of_first[place] + requests[0]) / max(first[place], 1), 1.0)
        other = min((of_second[place] + requests[1]) / max(second[place], 1), 1.0)
        has_both = (first[place] > 0) & (second[place] > 0)
        score[place] = np.trunc((1.0 - (abs((one - other) / 2) if has_both else 0.0)) * 100)


@inlined
def balance_tile(
    score: Float64,
    working: tuple[Float64, Float64, Float64, Bools],
    tile: Tile,
    allocatable: Int64,
    requested: Int64,
    resources: Int64,
    requests: Int64,
) -> None:
    """Computes `balance_scores` of a tile.

    Args:
        score: [tile], written to: whole numbers.
        working: working memory: two arrays [tile], two arrays [resources, tile or more].
    """
    if len(resources) == 2:
        _balance_of_two(score, tile, allocatable, requested, resources, requests)
        return
    total, number, fractions, there = working
    for place in range(len(score)):
        number[place] = total[place] = 0.0
    for index in range(len(resources)):
        capacity = at(allocatable[resources[index]], tile)
        used, extra = at(requested[resources[index]], tile), requests[index]
        fraction, has = fractions[index], there[index]
        for place in range(len(score)):
            has[place] = capacity[place] > 0
            part = min((used[place] + extra) / max(capacity[place], 1), 1.0)
            fraction[place] = part if has[place] else 0.0
            total[place] += fraction[place]
            number[place] += 1.0 if has[place] else 0.0
    for place in range(len(score)):
        deviation = 0.0
        if number[place] >= 2:
            deviation = _deviation(fractions[:, place], there[:, place], total[place], number[place])
        score[place] = np.trunc((1.0 - deviation) * 100)


@compiled("int64[::1](int64[::1], int64, int64[:, ::1], int64[:, ::1], int64[::1], int64[::1])")
def balance_scores(
    rows: Int64, count: int, allocatable: Int64, requested: Int64, resources: Int64, requests: Int64
) -> Int64:
    """Scores nodes by balance: 100 less the standard deviation of the used fractions of their resources, in percent.

    Sums run over the resources that a node has, in their order.

    Args:
        resources: rows of `allocatable`; requests: of each.

    Returns:
        [count], 0..100.
    """
    scores = np.empty(count, np.int64)
    size = min(count, TILE)
    fractions, there = np.empty((len(resources), size)), np.empty((len(resources), size), np.bool_)
    found, totals, numbers = np.empty(size), np.empty(size), np.empty(size)
    for start in range(0, count, TILE):
        stop = min(count - start, TILE)
        working = totals[:stop], numbers[:stop], fractions, there
        score = found[:stop]
        balance_tile(score, working, Tile(rows, count, start), allocatable, requested, resources, requests)
        for place in range(stop):
            scores[start + place] = np.int64(score[place])
    return scores
