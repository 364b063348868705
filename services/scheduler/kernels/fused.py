"""All that arithmetic says of nodes for one class of pods, in one pass: who has room, and the weighted sum of scores.

What several plugins read of a node is read once, and nothing that lies between is written. Tile by tile it is the arithmetic of `room`
and `load`.
"""

import numpy as np

from services.scheduler.kernels.compiled import compiled
from services.scheduler.kernels.load import leaves
from services.scheduler.kernels.resources import balance, fullness, short_of
from services.scheduler.kernels.select import FEASIBLE
from services.scheduler.kernels.tiles import TILE, Int64

_NODES = "int64[::1], int64, int64[::1], int64[::1], int64[::1], int64[:, ::1]"
_ROOM = "int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1]"
_SHORT = "int64, int64[::1], int64[::1], int64"
_FULL = "int64[:, ::1], int64[:, ::1]"
_EVEN = "int64, int64, int64[::1], int64[::1]"
_LEFT = "int64, int64, int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64, int64, int64[::1], int64"


@compiled(f"void({_NODES}, int64, {_ROOM}, {_SHORT}, {_FULL}, {_EVEN}, {_LEFT})")
def evaluate(  # noqa: C901 (one pass over what several plugins say)
    rows: Int64,
    count: int,
    by: Int64,
    result: Int64,
    total: Int64,
    each: Int64,
    base: int,
    pods: Int64,
    allowed_pods: Int64,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    index: int,
    short_resources: Int64,
    short_sizes: Int64,
    too_small: int,
    full: Int64,
    full_terms: Int64,
    even_place: int,
    even_weight: int,
    even_resources: Int64,
    even_asked: Int64,
    left_place: int,
    left_weight: int,
    left_allocatable: Int64,
    left_load: Int64,
    left_incoming: Int64,
    left_weights: Int64,
    left_dominant: int,
    left_total_weight: int,
    left_until_ns: Int64,
    left_now_ns: int,
) -> None:
    """Refuse nodes that are short, sum up what the others score.

    Args:
        rows, count: the nodes to look at, as `rows.selected` returns them.
        by, result: [count], written to where `by` is FEASIBLE and the node is short.
        total: [count], written to: -1 where `by` is not FEASIBLE.
        each: [parts, count], written to: the weighted scores that `total` is the sum of; or [0, 0].
        base: what every node scores besides.
        index, short_...: the filter's number and what `shortages` takes; an index below 0 for none.
        full: [parts, 5]: place among the parts, weight, first and last + 1 of its terms, whether `most`.
        full_terms: [4, terms]: resources, sources, asked and weights, as `filled` takes them.
        even_..., left_...: place among the parts, weight (0 for none), and what `evenness` and `left` take.
    """
    size = min(count, TILE)
    shorts = np.empty(size, np.int64)
    scores, shares, thirds, sums = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    fractions, there = np.empty((len(even_resources), size)), np.empty((len(even_resources), size), np.bool_)
    resources, sources, asked, weights = full_terms[0], full_terms[1], full_terms[2], full_terms[3]
    lefts = left_incoming, left_weights, left_dominant, left_total_weight, left_until_ns, left_now_ns
    for start in range(0, count, TILE):
        stop = min(count - start, TILE)
        score, share, third, summed = scores[:stop], shares[:stop], thirds[:stop], sums[:stop]
        here = by[start : start + stop]
        if index >= 0:
            short = shorts[:stop]
            needs = short_resources, short_sizes, too_small
            short_of(short, rows, count, start, pods, allowed_pods, allocatable, requested, *needs)
            any_short = np.int64(0)
            for place in range(stop):
                any_short |= short[place]
            if any_short:
                for place in range(stop):
                    if short[place] != 0 and here[place] == FEASIBLE:
                        here[place] = index
                        result[start + place] = short[place]
        for place in range(stop):
            summed[place] = base
        for number in range(len(full)):
            first, last, weight = full[number, 2], full[number, 3], np.float64(full[number, 1])
            fullness(
                score, share, third, rows, count, start, allocatable, requested, nonzero_requested, resources[first:last],
                sources[first:last], asked[first:last], weights[first:last], full[number, 4] != 0,
            )  # fmt: skip
            for place in range(stop):
                summed[place] += score[place] * weight
            if len(each):
                for place in range(stop):
                    each[full[number, 0], start + place] = np.int64(score[place] * weight)
        if even_weight:
            weight = np.float64(even_weight)
            given = even_resources, even_asked
            balance(score, share, third, fractions, there, rows, count, start, allocatable, requested, *given)
            for place in range(stop):
                summed[place] += score[place] * weight
            if len(each):
                for place in range(stop):
                    each[even_place, start + place] = np.int64(score[place] * weight)
        if left_weight:
            weight = np.float64(left_weight)
            leaves(score, share, third, rows, count, start, left_allocatable, left_load, *lefts)
            for place in range(stop):
                summed[place] += score[place] * weight
            if len(each):
                for place in range(stop):
                    each[left_place, start + place] = np.int64(score[place] * weight)
        for place in range(stop):
            total[start + place] = np.int64(summed[place]) if here[place] == FEASIBLE else -1
