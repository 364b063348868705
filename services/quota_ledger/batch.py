"""Many levels shared at once: the arithmetic of `sharing` over matrices, one row a level and resource, one column a child.

Exact: quotients of products that do not fit 64 bits are estimated in floating point and corrected by their remainder, which is known modulo
2^64. What is too large for that is left to the caller.
"""

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

LARGEST = 2**50
"""Of capacities, minima and asks."""

WEIGHTIEST = 2**58
"""Of the sum of the weights at a level."""


def shared(
    capacity: Int64, asks: Int64, minima: Int64, weights: Int64, lends: Bools, scales: Bools
) -> tuple[Int64, Int64] | None:
    """Floors and runtimes; None when an amount is too large.

    Args:
        capacity: [levels], what each shares.
        asks, minima, weights: [levels, children]; children sorted by name, zeros behind the last.
        lends: [levels, children].
        scales: [levels], whether minima shrink that do not fit.
    """
    if max(int(np.abs(capacity).max()), int(asks.max()), int(minima.max())) > LARGEST:
        return None
    if float(weights.sum(axis=1, dtype=np.float64).max()) > WEIGHTIEST:
        return None
    total = minima.sum(axis=1)
    if int(total.max()) > WEIGHTIEST:
        return None
    floors = minima
    short = scales & (capacity < total)
    if short.any():
        floors = minima.copy()
        fits = np.maximum(capacity[short], 0)[:, None]
        floors[short] = _divided(minima[short], fits, np.maximum(total[short], 1)[:, None])[0]
    hungry = asks > floors
    given = np.where(hungry | ~lends, floors, asks)
    left = capacity - given.sum(axis=1)
    _share_out(given, left, asks, weights, hungry)
    return floors, given


def _share_out(given: Int64, left: Int64, asks: Int64, weights: Int64, hungry: Bools) -> None:
    """Add what is left to those who ask for more, by weight, until nobody does or nothing is left."""
    rows = np.arange(len(given))
    weighed = np.where(hungry, weights, 0)
    while True:
        together = weighed.sum(axis=1)
        active = np.nonzero((left > 0) & (together > 0))[0]
        if not len(active):
            return
        if len(active) < len(left):
            rows, left, weighed, asks, together = (
                rows[active],
                left[active],
                weighed[active],
                asks[active],
                together[active],
            )
        portions, remainders = _divided(weighed, left[:, None], together[:, None])
        rest = left - portions.sum(axis=1)
        portions += _largest(np.where(weighed > 0, remainders, -1), rest)
        now = given[rows] + portions
        over = np.where(weighed > 0, np.maximum(now - asks, 0), 0)
        given[rows] = now - over
        left = over.sum(axis=1)
        weighed = np.where(now < asks, weighed, 0)


def _largest(remainders: Int64, count: Int64) -> Int64:
    """1 for the `count` largest of each row, equal ones from the left; 0 for the others."""
    width = remainders.shape[1]
    ordered = np.sort(remainders, axis=1)
    at = np.clip(width - count, 0, width - 1)
    bound = ordered[np.arange(len(ordered)), at][:, None]
    above = remainders > bound
    equal = remainders == bound
    missing = count - above.sum(axis=1)
    chosen = above | (equal & (np.cumsum(equal, axis=1) <= missing[:, None]))
    ones: Int64 = (chosen & (count[:, None] > 0)).astype(np.int64)
    return ones


def _divided(one: Int64, other: Int64, by: Int64) -> tuple[Int64, Int64]:
    """Quotient and remainder of one x other / by, all >= 0, by > 0; the quotient at most 2^50."""
    estimate = (one.astype(np.float64) * other / by).astype(np.int64)
    rest = one * other - estimate * by  # wraps around twice to the true difference, which is small
    correction = (rest >= by).astype(np.int64) - (rest < 0)  # the estimate is off by less than one and a half
    return estimate + correction, rest - correction * by
