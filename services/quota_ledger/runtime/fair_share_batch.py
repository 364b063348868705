"""The arithmetic of `fair_share` for many levels at once: one row a child, one column a level and resource.

Exact: a quotient whose product does not fit into 64 bits is estimated in floating point and corrected by its
remainder, which is known modulo 2^64. Amounts that are too large for that are left to the caller.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.runtime.fair_share import distribute

Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

LARGEST = 2**54
"""Largest capacity, min and demand: up to here a quotient's estimate is off by less than 9."""

LARGEST_SUM = 2**58
"""Largest sum of a level's weights, and of minima that are scaled down: 16 times as much fits into 63 bits."""

FEW = 64
"""Up to this number of cells it is faster to compute each level alone."""


class Levels(NamedTuple):
    """Amounts of some levels, each in one resource.

    Attributes:
        capacity: int64[levels].
        demands, minima, weights: int64[children, levels]; children sorted by name, zeros below the last.
        lends: bool[children, levels].
        scales: bool[levels], whether minima that do not fit are scaled down.
    """

    capacity: Int64
    demands: Int64
    minima: Int64
    weights: Int64
    lends: Bools
    scales: Bools

    def some(self, chosen: Bools) -> "Levels":
        """Returns the chosen levels."""
        cells = (self.demands[:, chosen], self.minima[:, chosen], self.weights[:, chosen], self.lends[:, chosen])
        return Levels(self.capacity[chosen], *cells, self.scales[chosen])


def fits(levels: Levels) -> Bools:
    """Returns bool[levels]: whether `compute` is exact with a level's amounts."""
    capacity, demands, minima, weights, _, _ = levels
    sums = [each.sum(axis=0, dtype=np.float64) for each in (demands, minima, weights)]
    largest = np.maximum(np.abs(capacity), np.maximum(demands.max(axis=0), minima.max(axis=0)))
    exact: Bools = (largest <= LARGEST) & (np.maximum.reduce(sums) <= LARGEST_SUM * (1 - 2**-40))
    return exact


def compute(levels: Levels) -> tuple[Int64, Int64]:
    """Returns scaled minima and runtimes, int64[children, levels], of levels whose amounts are not too large."""
    capacity, demands, minima, weights, lends, scales = levels
    total = minima.sum(axis=0)
    scaled_mins = minima
    short = np.flatnonzero(scales & (capacity < total))
    if len(short):
        available = np.maximum(capacity[short], 0)
        scaled_mins = minima.copy()
        scaled_mins[:, short] = _divided(minima[:, short], available, np.maximum(total[short], 1))[0]
    allocation = np.where(lends, np.minimum(demands, scaled_mins), scaled_mins)
    _distribute(allocation, capacity - allocation.sum(axis=0), demands, weights, demands > scaled_mins)
    return scaled_mins, allocation


def _distribute(allocation: Int64, left: Int64, demands: Int64, weights: Int64, unsatisfied: Bools) -> None:
    """Adds the remainder to the allocation by weight, until it is used up or all demand is met."""
    weighed = weights * unsatisfied
    demands = np.where(weighed > 0, demands, allocation)
    # Each round distributes the whole remainder: where it meets all demand, every child ends with its demand.
    all_met = left >= (demands - allocation).sum(axis=0)
    allocation[:, all_met] = demands[:, all_met]
    left[all_met] = 0
    got = allocation
    columns = np.arange(len(left))
    while len(columns):
        weight_sum = weighed.sum(axis=0)
        active = np.flatnonzero((left > 0) & (weight_sum > 0))
        if len(active) < len(left):
            allocation[:, columns] = got
            columns, left, weight_sum = columns[active], left[active], weight_sum[active]
            got, demands, weighed = got.take(active, 1), demands.take(active, 1), weighed.take(active, 1)
        if weighed.size <= FEW:
            _distribute_each(got, left, demands, weighed)
            break
        got += _apportioned(left, weight_sum, weighed)
        over = np.maximum(got - demands, 0)
        got -= over
        left = over.sum(axis=0)
        weighed = weighed * (got < demands)
    allocation[:, columns] = got


def _apportioned(amount: Int64, weight_sum: Int64, weights: Int64) -> Int64:
    """Returns [children, levels], parts of each amount > 0 by weight; equal fractions in the order of the children."""
    portions, fractions = _divided(weights, amount, weight_sum)
    rest = amount - portions.sum(axis=0)
    # There are always more fractions above zero than missing units.
    smallest = np.sort(fractions, axis=0)[len(fractions) - np.maximum(rest, 1), np.arange(len(rest))]
    smallest[rest == 0] = 2**63 - 1
    larger, equal = fractions > smallest, fractions == smallest
    portions += larger | (equal & (equal.cumsum(axis=0) <= rest - larger.sum(axis=0)))
    return portions


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
