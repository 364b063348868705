"""Scores of amounts: least or most allocated.

Source: spec/scheduler-core.md 4.10; upstream pkg/scheduler/plugins/nodenumaresource/{least,most}_allocated.go.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.scheduler.plugins.node_numa_resource.node_usage import Amounts
from services.scheduler.plugins.node_numa_resource.policy_names import MOST

ALWAYS_SCORED = ("cpu", "memory", "ephemeral-storage")

Weights = Sequence[tuple[str, int]]
"""Resources with their weights."""


class Strategies(NamedTuple):
    """Scoring strategies of the whole node and of its NUMA zones; the weights are the same for both."""

    weights: Weights
    of_node: str
    of_zones: str


def score(
    strategy: str, weights: Sequence[tuple[str, int]], total: Amounts, allocated: Amounts, requested: Mapping[str, int]
) -> int:
    """Weighted mean over resources of the strategy's score for each, 0..100.

    A resource without capacity does not count; nor does one other than cpu, memory and ephemeral-storage that the
    pod does not request.
    """
    points = weight_sum = 0
    for name, weight in weights:
        capacity = total.get(name, 0)
        if capacity == 0 or (name not in ALWAYS_SCORED and not requested.get(name, 0)):
            continue
        needed = allocated.get(name, 0) + requested.get(name, 0)
        points += weight * points_of(strategy, needed, capacity)
        weight_sum += weight
    return points // weight_sum if weight_sum else 0


def points_of(strategy: str, needed: int, capacity: int) -> int:
    """The score of one resource, 0..100; 0 where the capacity is not positive."""
    if capacity <= 0:
        return 0
    if strategy == MOST:
        return min(needed, capacity) * 100 // capacity
    return 0 if needed > capacity else (capacity - needed) * 100 // capacity
