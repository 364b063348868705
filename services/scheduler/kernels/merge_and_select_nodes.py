"""Merged results of several filters, summed scores, and the selection of the best nodes."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.kernels.numba_compile import Number, compiled, inlined

UInt64 = NDArray[np.uint64]

FEASIBLE, NO_NODE = -1, -2
"""In place of the index of the filter that rejects a node: no filter rejects it; the row has no node."""

AS_IT_IS, UP, DOWN = 0, 1, 2
"""Normalisation of raw scores by `add`: none, percent of the highest, or 100 less that."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@compiled("void(int64[::1], int64[::1], int64[::1], int64)")
def note_refusals(by: Int64, result: Int64, results: Int64, index: int) -> None:
    """Notes the rejections of a filter, unless a filter with a lower index rejects the node.

    Args:
        by, result: [nodes], written to: index of the rejecting filter, FEASIBLE for none, and its result.
        results: [nodes]: the results of the filter, 0 for a node that passes.
        index: of the filter.
    """
    for row in range(len(by)):
        if results[row] != 0 and (by[row] == FEASIBLE or by[row] > index):
            by[row] = index
            result[row] = results[row]


@compiled("void(int64[::1], int64[::1], int64[::1], int64)")
def first_refusals(by: Int64, result: Int64, results: Int64, index: int) -> None:
    """Does the same as `note_refusals` where no filter has rejected a node yet, whatever `by` and `result` hold."""
    for row in range(len(by)):
        by[row] = index if results[row] != 0 else FEASIBLE
        result[row] = results[row]


@compiled("void(int64[::1], int64[::1], int64[::1], int64[::1])")
def overlay(by: Int64, result: Int64, other_by: Int64, other_result: Int64) -> None:
    """Merges two lists of rejections: of two filters that reject a node, the one with the lower index counts.

    Args:
        by, result: [nodes], written to, as in `note_refusals`.
    """
    for row in range(len(by)):
        other = other_by[row]
        if other != FEASIBLE and (by[row] == FEASIBLE or other < by[row]):
            by[row] = other
            result[row] = other_result[row]


@compiled("void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def merged(by: Int64, result: Int64, one_by: Int64, one_result: Int64, other_by: Int64, other_result: Int64) -> None:
    """Writes what `overlay` would make of the first list to `by` and `result`, and leaves both lists as they are."""
    for row in range(len(by)):
        one, other = one_by[row], other_by[row]
        if other != FEASIBLE and (one == FEASIBLE or other < one):
            by[row], result[row] = other, other_result[row]
        else:
            by[row], result[row] = one, one_result[row]


@compiled("int64(int64[::1], int64[::1], int64[::1], int64, int64)")
def add(total: Int64, raw: Int64, by: Int64, weight: int, how: int) -> Number:
    """Adds weighted scores to the totals.

    Args:
        total: [nodes], written to.
        by: [nodes], FEASIBLE where no filter rejects: only these count for the highest.
        how: AS_IT_IS, UP or DOWN; raw scores are below 2^46 then.

    Returns:
        The highest raw score, 0 for scores AS_IT_IS.
    """
    if how == AS_IT_IS:
        for row in range(len(total)):
            total[row] += raw[row] * weight
        return 0
    highest: Number = np.int64(0)
    for row in range(len(total)):
        if by[row] == FEASIBLE:
            highest = max(highest, raw[row])
    base, sign = (100, -weight) if how == DOWN else (0, weight)
    if highest == 0:
        for row in range(len(total)):
            total[row] += base * weight
    else:
        for row in range(len(total)):
            total[row] += base * weight + np.int64(np.floor(raw[row] * 100 / highest)) * sign
    return highest


@compiled("int64(int64[::1], int64)")
def occurrences(by: Int64, which: int) -> Number:
    """Returns how often a number occurs."""
    found: Number = np.int64(0)
    for row in range(len(by)):
        found += by[row] == which
    return found


@compiled("int64[::1](int64[::1], int64, int64)")
def tally(by: Int64, lowest: int, kinds: int) -> Int64:
    """Returns [kinds]: how often each number occurs, from `lowest` on."""
    counts = np.zeros(kinds, np.int64)
    for row in range(len(by)):
        counts[by[row] - lowest] += 1
    return counts


@compiled("void(int64[::1], int64[::1])")
def close(total: Int64, by: Int64) -> None:
    """Sets the totals of rejected nodes to -1."""
    for row in range(len(total)):
        if by[row] != FEASIBLE:
            total[row] = -1


@inlined
def standing(node: np.uint64, pod: np.uint64) -> np.uint64:
    """Returns splitmix64 of both hashes; the highest wins a tie. Source: `tie_break.py`; Steele, Lea and Flood's
    finaliser.
    """
    z = (node ^ pod) + _GOLDEN
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return z ^ (z >> _31)


@compiled("int64[::1](int64[::1], uint64[::1], uint64, int64)")
def best_rows(total: Int64, hashes: UInt64, pod: np.uint64, count: int) -> Int64:
    """Returns the best nodes: by total, then by `standing` for this pod, then by row.

    Args:
        total: [nodes], below 0 where a node is rejected.
        hashes: [nodes], of their names; pod: of its uid.

    Returns:
        Up to `count` rows, the best first.
    """
    rows = np.full(count, -1, np.int64)
    totals = np.full(count, -1, np.int64)
    stands = np.zeros(count, np.uint64)
    found = 0
    for row in range(len(total)):
        here = total[row]
        if here < 0 or here < totals[count - 1]:
            continue
        stand = standing(hashes[row], pod)
        place = found
        while place > 0 and (here > totals[place - 1] or (here == totals[place - 1] and stand > stands[place - 1])):
            place -= 1
        if place >= count:
            continue
        found = min(found + 1, count)
        for later in range(found - 1, place, -1):
            rows[later], totals[later], stands[later] = rows[later - 1], totals[later - 1], stands[later - 1]
        rows[place], totals[place], stands[place] = row, here, stand
    return rows[:found].copy()


@compiled("int64(int64[::1], int64[::1], boolean[::1], uint64[::1], uint64[::1], int64[::1], int64[::1])")
def run(
    total: Int64, later: Int64, moved: NDArray[np.bool_], hashes: UInt64, pods: UInt64, rows: Int64, totals: Int64
) -> Number:
    """Places equal pods one after the other, as long as each goes to a node without one of them.

    Args:
        total: [nodes], below 0 where a node is rejected; later: the same with one of the pods on the node.
        moved: [nodes], written to: True for a node with one of the pods.
        hashes: [nodes], of their names; pods: of the pods' uids.
        rows, totals: [pods], written to: each pod's node, and its total.

    Returns:
        The number of placed pods. It ends with a node that is full afterwards, and before two nodes that differ only by
        name.
    """
    now, highest = total.copy(), np.empty(len(total), np.int64)  # the rows of the best nodes
    top, count = np.int64(0), 0
    for number in range(len(pods)):
        if count == 0:
            top = np.int64(0)
            for row in range(len(now)):
                top = max(top, now[row])
            for row in range(len(now)):
                if now[row] == top:
                    highest[count] = row
                    count += 1
        place, stand, alike = -1, np.uint64(0), False
        for each in range(count):
            own = standing(hashes[highest[each]], pods[number])
            if place < 0 or own > stand:
                place, stand, alike = each, own, False
            elif own == stand:
                alike = True
        if place < 0 or alike or moved[highest[place]]:
            return number
        best = highest[place]
        rows[number], totals[number], moved[best], now[best] = best, top, True, later[best]
        if later[best] < 0:
            return number + 1
        if later[best] > top:
            highest[0], count, top = best, 1, later[best]
        elif later[best] < top:
            count -= 1
            highest[place] = highest[count]
    return len(pods)


@compiled("uint64[::1](uint64[::1], uint64)")
def standings(hashes: UInt64, pod: np.uint64) -> UInt64:
    """Returns [nodes]: `standing` of each node for the pod."""
    stands = np.empty(len(hashes), np.uint64)
    for place in range(len(hashes)):
        stands[place] = standing(hashes[place], pod)
    return stands
