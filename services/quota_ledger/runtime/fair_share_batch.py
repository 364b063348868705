"""The arithmetic of `fair_share` for many levels at once: one row a child, one column a level and resource.

Exact: a quotient whose product does not fit into 64 bits is estimated in floating point and corrected by its
remainder, which is known modulo 2^64. Amounts that are too large for that are left to the caller.
"""

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.runtime.fair_share import distribute

Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

LARGEST = 2**54
"""Largest capacity, min and demand: up to here a quotient's estimate is off by less than 9."""

MAX_WIDTH = 256
"""Most children of a level: so their minima add up to at most 2^62."""

FEW = 4
"""Up to this number of levels it is faster to compute each alone."""


def max_weight_sum(width: int) -> int:
    """Returns the largest sum of weights: a remainder times the width, and 16 times the sum, fit into 63 bits."""
    return 2**63 // max(width, 32) - 1


def compute(
    capacity: Int64, demands: Int64, minima: Int64, weights: Int64, lends: Bools, scales: Bools
) -> tuple[Int64, Int64] | None:
    """Returns scaled minima and runtimes; None when an amount is too large.

    Args:
        capacity: [levels].
        demands, minima, weights: [children, levels]; children sorted by name, zeros below the last.
        lends: [children, levels].
        scales: [levels], whether minima that do not fit are scaled down.
    """
    width = len(demands)
    if width > MAX_WIDTH or max(int(np.abs(capacity).max()), int(demands.max()), int(minima.max())) > LARGEST:
        return None
    if float(weights.sum(axis=0, dtype=np.float64).max()) > max_weight_sum(width) * (1 - 2**-40):
        return None
    total = minima.sum(axis=0)
    scaled_mins = minima
    short = np.flatnonzero(scales & (capacity < total))
    if len(short):
        if int(total[short].max()) > max_weight_sum(width):
            return None
        fits = np.maximum(capacity[short], 0)
        scaled_mins = minima.copy()
        scaled_mins[:, short] = _divided(minima[:, short], fits, np.maximum(total[short], 1))[0]
    allocation = np.where(lends, np.minimum(demands, scaled_mins), scaled_mins)
    _distribute(allocation, capacity - allocation.sum(axis=0), demands, weights, demands > scaled_mins)
    return scaled_mins, allocation


def _distribute(allocation: Int64, left: Int64, demands: Int64, weights: Int64, unsatisfied: Bools) -> None:
    """Adds the remainder to the allocation by weight, until it is used up or all demand is met."""
    width = len(allocation)
    weighed = weights * unsatisfied
    demands = np.where(unsatisfied, demands, 2 * LARGEST)
    ranks = np.arange(width - 1, -1, -1)[:, None]
    got = allocation
    columns = np.arange(len(left))
    while len(columns):
        weight_sum = weighed.sum(axis=0)
        active = np.flatnonzero((left > 0) & (weight_sum > 0))
        if len(active) < len(left):
            allocation[:, columns] = got
            columns, left, weight_sum = columns[active], left[active], weight_sum[active]
            got, demands, weighed = got.take(active, 1), demands.take(active, 1), weighed.take(active, 1)
        if len(active) <= FEW:
            _distribute_each(got, left, demands, weighed)
            break
        portions, remainders = _divided(weighed, left, weight_sum)
        rest = left - portions.sum(axis=0)
        # The largest fractions get one unit more, equal ones by rank. There are always more of them than missing units.
        remainders *= width
        remainders += ranks
        bound = np.sort(remainders, axis=0)[width - np.maximum(rest, 1), np.arange(len(rest))]
        bound[rest == 0] = 2**63 - 1
        portions += remainders >= bound
        got += portions
        over = np.maximum(got - demands, 0)
        got -= over
        left = over.sum(axis=0)
        weighed = weighed * (got < demands)
    allocation[:, columns] = got


def _distribute_each(allocation: Int64, left: Int64, demands: Int64, weights: Int64) -> None:
    lists = (left.tolist(), allocation.T.tolist(), demands.T.tolist(), weights.T.tolist())
    for column, (rest, got, demand, weight) in enumerate(zip(*lists, strict=True)):
        unsatisfied = [index for index, size in enumerate(weight) if size]
        distribute(got, rest, unsatisfied, demand, weight, range(len(got)))
        allocation[:, column] = got


def _divided(one: Int64, other: Int64, by: Int64) -> tuple[Int64, Int64]:
    """Returns quotient and remainder of one x other / by, all >= 0, by > 0; the quotient is at most LARGEST."""
    estimate = (one * (other / by)).astype(np.int64)
    rest = one * other - estimate * by  # both products wrap; their difference is true, since it is at most 9 times `by`
    while True:
        low = rest < 0
        off = low | (rest >= by)
        if not off.any():
            return estimate, rest
        step = np.where(low, -1, 1) * off
        estimate += step
        rest -= step * by
