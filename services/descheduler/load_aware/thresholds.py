"""Thresholds of a pool: completed per resource, then as amounts per node.

Source: spec/descheduler.md 2.4.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.descheduler.load_aware.arguments import PoolArgs

Ints = NDArray[np.int64]

MEMORY = "memory"


class Percents(NamedTuple):
    """Completed thresholds in percent: each map has every resource of the pool; the high ones may lack one.

    Attributes:
        resources: of the pool, sorted.
    """

    resources: tuple[str, ...]
    low: Mapping[str, float]
    high: Mapping[str, float]
    prod_low: Mapping[str, float]
    prod_high: Mapping[str, float]


class Thresholds(NamedTuple):
    """Thresholds as amounts: int64[nodes, resources] each."""

    low: Ints
    high: Ints
    prod_low: Ints
    prod_high: Ints


def completed(pool: PoolArgs) -> Percents:
    """Returns the thresholds of a pool with every resource that one of its maps names, and memory.

    A resource without a low threshold gets 100 for both (0 in deviation mode), also where it has a high one: a quirk of
    upstream. The maps of the configuration stay as they are; upstream changes them (docs/compat.md).
    """
    resources = tuple(sorted({MEMORY, *pool.low, *pool.high, *pool.prod_low, *pool.prod_high}))
    absent = 0.0 if pool.use_deviation else 100.0
    low, high, prod_low, prod_high = (dict(each) for each in (pool.low, pool.high, pool.prod_low, pool.prod_high))
    for resource in resources:
        if resource not in low:
            low[resource] = high[resource] = absent
        if resource not in prod_low:
            prod_low[resource] = prod_high[resource] = absent
    return Percents(resources, low, high, prod_low, prod_high)


def thresholds(percents: Percents, pool: PoolArgs, capacity: Ints, usage: Ints, prod_usage: Ints) -> Thresholds:
    """Returns the thresholds of the nodes of a pool.

        T = trunc(p * 0.01 * A), in doubles, multiplied in that order; with deviations, p is
        avg - low or avg + high within 0..100, avg = sum of usage / A * 100 over the nodes, divided by their number;
        a deviation whose low one is 0 gives A for both.

    Args:
        capacity, usage, prod_usage: [nodes, resources].
    """
    low, high = _pair(percents.resources, percents.low, percents.high, pool, capacity, usage)
    prod_low, prod_high = _pair(percents.resources, percents.prod_low, percents.prod_high, pool, capacity, prod_usage)
    return Thresholds(low, high, prod_low, prod_high)


def _pair(
    resources: tuple[str, ...],
    low: Mapping[str, float],
    high: Mapping[str, float],
    pool: PoolArgs,
    capacity: Ints,
    usage: Ints,
) -> tuple[Ints, Ints]:
    low_p = np.array([low[name] for name in resources])
    high_p = np.array([high.get(name, 0.0) for name in resources])
    if not pool.use_deviation or not len(capacity):
        return _amounts(low_p, capacity), _amounts(high_p, capacity)
    average = averages(capacity, usage)
    least, most = (np.clip(each, 0.0, 100.0) for each in (average - low_p, average + high_p))
    ignored = low_p == 0
    return np.where(ignored, capacity, _amounts(least, capacity)), np.where(ignored, capacity, _amounts(most, capacity))


def averages(capacity: Ints, usage: Ints) -> NDArray[np.float64]:
    """Returns the mean usage of each resource in percent; a node without the resource adds 0 and counts.

    The sum runs from the first node to the last: numpy's own sum has an order of its own.
    """
    shares = np.zeros(capacity.shape)
    np.divide(usage, capacity, out=shares, where=capacity != 0)
    sums = np.cumsum(shares * 100.0, axis=0)
    means: NDArray[np.float64] = sums[-1] / len(capacity)
    return means


def _amounts(percent: NDArray[np.float64], capacity: Ints) -> Ints:
    amounts: Ints = np.trunc(percent * 0.01 * capacity).astype(np.int64)
    return amounts
