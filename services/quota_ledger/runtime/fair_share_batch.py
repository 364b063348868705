"""Many levels shared at once: the arithmetic of `sharing` over matrices, one row a child, one column a level and resource.

Exact: quotients of products that do not fit 64 bits are estimated in floating point and corrected by their remainder, which is known modulo
2^64. What is too large for that is left to the caller.
"""

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.runtime.fair_share import share_out

Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

LARGEST = 2**54
"""Of capacities, minima and asks: a quotient's estimate is then off by less than 9."""

WIDEST = 256
"""Children at a level, so that their minima add up to at most 2^62."""

FEW = 4
"""So many levels are shared faster one by one."""


def weightiest(width: int) -> int:
    """Of the sum of the weights at a level: a remainder times the width, and 16 times the sum, fit 63 bits."""
    return 2**63 // max(width, 32) - 1


def shared(
    capacity: Int64, demands: Int64, minima: Int64, weights: Int64, lends: Bools, scales: Bools
) -> tuple[Int64, Int64] | None:
    """Floors and runtimes; None when an amount is too large.

    Args:
        capacity: [levels], what each shares.
        asks, minima, weights: [children, levels]; children sorted by name, zeros behind the last.
        lends: [children, levels].
        scales: [levels], whether minima shrink that do not fit.
    """
    width = len(demands)
    if width > WIDEST or max(int(np.abs(capacity).max()), int(demands.max()), int(minima.max())) > LARGEST:
        return None
    if float(weights.sum(axis=0, dtype=np.float64).max()) > weightiest(width) * (1 - 2**-40):
        return None
    total = minima.sum(axis=0)
    scaled_mins = minima
    short = np.flatnonzero(scales & (capacity < total))
    if len(short):
        if int(total[short].max()) > weightiest(width):
            return None
        fits = np.maximum(capacity[short], 0)
        scaled_mins = minima.copy()
        scaled_mins[:, short] = _divided(minima[:, short], fits, np.maximum(total[short], 1))[0]
    allocation = np.where(lends, np.minimum(demands, scaled_mins), scaled_mins)
    _share_out(allocation, capacity - allocation.sum(axis=0), demands, weights, demands > scaled_mins)
    return scaled_mins, allocation


def _share_out(allocation: Int64, left: Int64, demands: Int64, weights: Int64, unsatisfied: Bools) -> None:
    """Add what is left to those who ask for more, by weight, until nobody does or nothing is left."""
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
            _one_by_one(got, left, demands, weighed)
            break
        portions, remainders = _divided(weighed, left, weight_sum)
        rest = left - portions.sum(axis=0)
        # The largest remainders get one more, equal ones by rank. Fewer are missing than there are remainders above zero.
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


def _one_by_one(allocation: Int64, left: Int64, demands: Int64, weights: Int64) -> None:
    lists = (left.tolist(), allocation.T.tolist(), demands.T.tolist(), weights.T.tolist())
    for column, (rest, got, demand, weight) in enumerate(zip(*lists, strict=True)):
        unsatisfied = [index for index, size in enumerate(weight) if size]
        share_out(got, rest, unsatisfied, demand, weight, range(len(got)))
        allocation[:, column] = got


def _divided(one: Int64, other: Int64, by: Int64) -> tuple[Int64, Int64]:
    """Quotient and remainder of one x other / by, all >= 0, by > 0; the quotient at most `LARGEST`."""
    estimate = (one * (other / by)).astype(np.int64)
    rest = one * other - estimate * by  # wraps around twice to the true difference, which is at most 9 times `by`
    while True:
        low = rest < 0
        off = low | (rest >= by)
        if not off.any():
            return estimate, rest
        step = np.where(low, -1, 1) * off
        estimate += step
        rest -= step * by
