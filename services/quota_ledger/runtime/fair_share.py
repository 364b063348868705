"""How the capacity of a parent is shared among its children, one resource at a time. Integers in, integers out.

Each child first gets what is certain: its floor where it asks for more, else what it asks for (or its floor, when it does not
lend). What is left goes to those who ask for more, by weight, largest remainder first, until nobody asks or nothing is left.

Source: spec/quota.md 3.1; upstream pkg/scheduler/plugins/elasticquota/core/runtime_quota_calculator.go.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

Rank = TypeVar("Rank", str, int)


class Child(NamedTuple):
    """One child at a level, in one resource.

    Attributes:
        floor: what it is guaranteed here: its scaled min, or what is allocated below it.
        ask: its request limited by its max.
        weight: its share of what is left; 0 never gets more than the floor.
        lends: whether what it does not ask for of its floor goes to others.
    """

    name: str
    effective_min: int
    demand: int
    weight: int
    lends: bool


def share(capacity: int, children: Sequence[Child]) -> list[int]:
    """Runtime of each child, in the given order; the result does not depend on that order.

    The sum is at most max(capacity, sum of what is certain).
    """
    allocation = [0] * len(children)
    unsatisfied: list[int] = []
    left = capacity
    for index, (_, effective_min, demand, _, lends) in enumerate(children):
        if demand > effective_min:
            allocation[index] = effective_min
            unsatisfied.append(index)
        else:
            allocation[index] = demand if lends else effective_min
        left -= allocation[index]
    demands, sizes = [child.demand for child in children], [child.weight for child in children]
    share_out(allocation, left, unsatisfied, demands, sizes, [child.name for child in children])
    return allocation


def share_out(
    allocation: list[int],
    left: int,
    unsatisfied: list[int],
    demands: Sequence[int],
    weights: Sequence[int],
    ranks: Sequence[Rank],
) -> None:
    """Add what is left to what is given, by weight, until nobody asks or nothing is left.

    Args:
        hungry: indices of those who ask for more than they were given.
        ranks: who comes first of equal remainders.
    """
    while left > 0 and unsatisfied:
        weight_sum = sum([weights[index] for index in unsatisfied])
        if weight_sum <= 0:
            return
        portions = apportion(left, weight_sum, [(weights[index], ranks[index]) for index in unsatisfied])
        remaining: list[int] = []
        left = 0
        for index, portion in zip(unsatisfied, portions, strict=True):
            got, demand = allocation[index] + portion, demands[index]
            if got < demand:
                remaining.append(index)
            else:
                left += got - demand
                got = demand
            allocation[index] = got
        unsatisfied = remaining


def apportion(amount: int, weights: int, parts: Sequence[tuple[int, Rank]]) -> list[int]:
    """Divide an amount by weight, whole units to the largest remainders, equal ones by rank.

    Args:
        amount: > 0.
        weights: sum of the weights, > 0.
        parts: (weight, rank) of each; a weight of 0 or less gets nothing.
    """
    portions = [0] * len(parts)
    remainders: list[tuple[int, Rank, int]] = []
    rest = amount
    for index, (weight, rank) in enumerate(parts):
        if weight > 0:
            portions[index], remainder = divmod(weight * amount, weights)
            rest -= portions[index]
            remainders.append((-remainder, rank, index))
    if rest > 0:
        remainders.sort()
        for _, _, index in remainders[:rest]:
            portions[index] += 1
    return portions


def scaled_min(capacity: int, own: int, min_sum: int) -> int:
    """A child's min where the minima of all children (`siblings`, itself included) exceed the capacity: its part of what there is."""
    if capacity >= min_sum:
        return own
    if capacity <= 0:
        return 0
    return capacity * own // min_sum


def scaled_minima(capacity: Mapping[str, int], minima: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
    """The effective minima of all children of one parent, over all resources. A resource that is no key of the capacity is not scaled."""
    sums: dict[str, int] = {}
    for own in minima:
        for name, size in own.items():
            sums[name] = sums.get(name, 0) + size
    short = [(name, size) for name, size in sums.items() if name in capacity and capacity[name] < size]
    if not short:
        return list(minima)
    return [
        {**own, **{name: scaled_min(capacity[name], own.get(name, 0), size) for name, size in short}} for own in minima
    ]
