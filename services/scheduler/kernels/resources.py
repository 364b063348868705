"""Room on nodes: who has too little of it, and how full each would be.

Arrays over amounts are [resources, nodes]: one row a resource. The nodes to look at, `rows` and `count`, are what `rows.selected`
returns. Loops run along nodes, one resource after the other: so they become vector instructions.
"""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.kernels.compiled import Number, compiled, inlined, part
from services.scheduler.kernels.tiles import TILE, Bools, Int64, at

Float64 = NDArray[np.float64]


_EXACT = (1 << 53) // 100
"""100 times a whole number up to it is a float."""


@inlined
def percent(part: Number, whole: Number) -> Number:
    """floor(100 * part / whole), exact while the percent is below 2^51; part not negative, whole above 0.

    Integers divide at a tenth of the speed of floats. A float quotient is off by less than one, which its remainder shows.
    """
    product = part * 100
    quotient = np.int64(product / whole)
    rest = product - quotient * whole
    return quotient + (rest >= whole) - (rest < 0)


@part
def percents(share: Float64, capacity: Int64, used: Int64, extra: Number, most: Number) -> None:
    """How much of each node is left, or taken if `most`, with `extra` more, in percent and rounded down; 0 without capacity.

        part    = min( used + extra, capacity ) if most, else capacity - used - extra; at least 0
        percent = floor( 100 * part / capacity )

    Up to 100 * part = 2^53 the quotient of floats is exact: one that lies below a whole number lies below it by 1/capacity at least, and
    rounding moves it by at most 100 * part / capacity * 2^-53, which is less.

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


@part
def short_of(
    short: Int64,
    rows: Int64,
    count: Number,
    start: Number,
    pods: Int64,
    allowed_pods: Int64,
    allocatable: Int64,
    requested: Int64,
    resources: Int64,
    sizes: Int64,
    too_small: Number,
) -> None:
    """`shortages` of a tile. short: [tile], written to."""
    running, allowed = at(pods, rows, count, start), at(allowed_pods, rows, count, start)
    for place in range(len(short)):
        short[place] = running[place] >= allowed[place]
    for number in range(len(resources)):
        resource, size, bit = resources[number], sizes[number], np.int64(2) << number
        if resource >= requested.shape[0]:
            for place in range(len(short)):
                short[place] |= bit | too_small
            continue
        capacity, taken = at(allocatable[resource], rows, count, start), at(requested[resource], rows, count, start)
        for place in range(len(short)):
            lacks = bit if capacity[place] - taken[place] < size else 0
            short[place] |= lacks | (too_small if capacity[place] < size else 0)


@compiled(
    "int64[::1](int64[::1], int64, int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64)"
)
def shortages(
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
    """What each node is short of.

    Args:
        resources, sizes: what is asked for, by its row in the arrays; a row beyond `requested` stands for what no node has.
        too_small: the bit for a node that is too small even when empty.

    Returns:
        [count]: bit 0 for no place for a pod, bit i + 1 for the i-th resource, and `too_small`.
    """
    results = np.empty(count, np.int64)
    for start in range(0, count, TILE):
        short = results[start : start + TILE]
        short_of(short, rows, count, start, pods, allowed_pods, allocatable, requested, resources, sizes, too_small)
    return results


@part
def fullness(
    score: Float64,
    share: Float64,
    weight: Float64,
    rows: Int64,
    count: Number,
    start: Number,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    resources: Int64,
    sources: Int64,
    asked: Int64,
    weights: Int64,
    most: Number,
) -> None:
    """`filled` of a tile.

    Weighted sums stay below 2^26, where half a unit above the sum keeps a quotient away from whole numbers by more than rounding moves it:
    so nodes that have all of the resources need no division.

    Args:
        score: [tile], written to: whole numbers; share, weight: [tile], to work with.
    """
    for place in range(len(score)):
        score[place] = 0.0
    whole, lacking = 0.0, np.int64(0)
    for number in range(len(resources)):
        resource, source, each = resources[number], sources[number], np.float64(weights[number])
        if resource < 0:
            continue
        whole += each
        capacity = at(allocatable[resource], rows, count, start)
        used = at(requested[resource] if source < 0 else nonzero_requested[source], rows, count, start)
        percents(share, capacity, used, asked[number], most)
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
            capacity, each = at(allocatable[resources[number]], rows, count, start), np.float64(weights[number])
            for place in range(len(score)):
                weight[place] += each if capacity[place] > 0 else 0.0
    for place in range(len(score)):
        score[place] = np.trunc(score[place] / max(weight[place], 1.0))


_FILL = "int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64[::1], int64[::1]"


@compiled(f"int64[::1](int64[::1], int64, {_FILL}, boolean)")
def filled(
    rows: Int64,
    count: int,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    resources: Int64,
    sources: Int64,
    asked: Int64,
    weights: Int64,
    most: bool,
) -> Int64:
    """How full nodes would be, as a weighted mean of percents over the resources that a node has.

        part  = 100 * (allocatable - used - asked) / allocatable, at least 0     (least)
                100 * min(used + asked, allocatable) / allocatable               (most)
        score = floor( sum of weight * floor(part) / sum of weights ), 0 without any such resource

    Args:
        resources: rows of `allocatable`; -1 for one that does not count.
        sources: where `used` stands: -1 in `requested`, else this row of `nonzero_requested`.
        asked, weights: of each of them.

    Returns:
        [count], 0..100.
    """
    scores = np.empty(count, np.int64)
    size = min(count, TILE)
    found, shares, weighed = np.empty(size), np.empty(size), np.empty(size)
    amounts = allocatable, requested, nonzero_requested
    for start in range(0, count, TILE):
        stop = min(count - start, TILE)
        score, share, weight = found[:stop], shares[:stop], weighed[:stop]
        fullness(score, share, weight, rows, count, start, *amounts, resources, sources, asked, weights, most)
        for place in range(stop):
            scores[start + place] = np.int64(score[place])
    return scores


@compiled(f"int64[::1](int64[::1], int64, {_FILL}, int64[::1], int64[::1])")
def on_shape(
    rows: Int64,
    count: int,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    resources: Int64,
    sources: Int64,
    asked: Int64,
    weights: Int64,
    shape_at: Int64,
    shape: Int64,
) -> Int64:
    """How full nodes would be, put through a piecewise linear function; a resource counts where that is above 0.

    Args:
        resources, sources, asked, weights: as in `filled`.
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
            percents = percent(min(used + asked[number], capacity), capacity)
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
    """Half the difference of two fractions; of more their standard deviation."""
    mean, squares = total / number, 0.0
    last = second = 0.0
    for index in range(len(fractions)):
        if there[index]:
            squares += (fractions[index] - mean) * (fractions[index] - mean)
            last, second = second, fractions[index]
    return abs((last - second) / 2) if number == 2 else np.sqrt(squares / number)


@part
def balance(
    score: Float64,
    total: Float64,
    number: Float64,
    fractions: Float64,
    there: Bools,
    rows: Int64,
    count: Number,
    start: Number,
    allocatable: Int64,
    requested: Int64,
    resources: Int64,
    asked: Int64,
) -> None:
    """`evenness` of a tile.

    Args:
        score: [tile], written to: whole numbers; total, number: [tile], fractions, there: [resources, tile or more], to work with.
    """
    if len(resources) == 2:
        first, second = (
            at(allocatable[resources[0]], rows, count, start),
            at(allocatable[resources[1]], rows, count, start),
        )
        of_first, of_second = (
            at(requested[resources[0]], rows, count, start),
            at(requested[resources[1]], rows, count, start),
        )
        for place in range(len(score)):
            one = min((of_first[place] + asked[0]) / max(first[place], 1), 1.0)
            other = min((of_second[place] + asked[1]) / max(second[place], 1), 1.0)
            has_both = (first[place] > 0) & (second[place] > 0)
            score[place] = np.trunc((1.0 - (abs((one - other) / 2) if has_both else 0.0)) * 100)
        return
    for place in range(len(score)):
        number[place] = total[place] = 0.0
    for index in range(len(resources)):
        capacity = at(allocatable[resources[index]], rows, count, start)
        used, extra = at(requested[resources[index]], rows, count, start), asked[index]
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
def evenness(rows: Int64, count: int, allocatable: Int64, requested: Int64, resources: Int64, asked: Int64) -> Int64:
    """How evenly the resources of a node would be used: 100 less the standard deviation of the fractions, in percent.

    Sums run over the resources that a node has, in their order.

    Args:
        resources: rows of `allocatable`; asked: of each.

    Returns:
        [count], 0..100.
    """
    scores = np.empty(count, np.int64)
    size = min(count, TILE)
    fractions, there = np.empty((len(resources), size)), np.empty((len(resources), size), np.bool_)
    found, totals, numbers = np.empty(size), np.empty(size), np.empty(size)
    for start in range(0, count, TILE):
        stop = min(count - start, TILE)
        score, total, number = found[:stop], totals[:stop], numbers[:stop]
        balance(score, total, number, fractions, there, rows, count, start, allocatable, requested, resources, asked)
        for place in range(stop):
            scores[start + place] = np.int64(score[place])
    return scores
