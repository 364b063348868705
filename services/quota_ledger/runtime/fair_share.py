"""The fair share of each child of a parent, one resource at a time. Integers in, integers out.

Each child first has a base: its effective min where its demand is larger, else its demand (or its effective min, when
it does not lend). The remainder of the capacity goes to the children with more demand, by weight, whole units by the
largest fraction, round by round, until it is used up or all demand is met.

Source: spec/quota.md 3.1; upstream pkg/scheduler/plugins/elasticquota/core/runtime_quota_calculator.go.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

Rank = TypeVar("Rank", str, int)


class Child(NamedTuple):
    """One child at a level, in one resource.

    Attributes:
        effective_min: its scaled min, or the use below it where that is guaranteed and larger.
        demand: its request, at most its max.
        weight: its part of the remainder; a child with 0 gets no more than its effective min.
        lends: whether the part of its effective min beyond its demand goes to others.
    """

    name: str
    effective_min: int
    demand: int
    weight: int
    lends: bool


def share(capacity: int, children: Sequence[Child]) -> list[int]:
    """Returns the runtime of each child, in the given order, on which the result does not depend.

    The sum is at most max(capacity, sum of all bases).
    """
    allocation = [0] * len(children)
    unsatisfied: list[int] = []
    remainder = capacity
    for index, (_, effective_min, demand, _, lends) in enumerate(children):
        if demand > effective_min:
            allocation[index] = effective_min
            unsatisfied.append(index)
        else:
            allocation[index] = demand if lends else effective_min
        remainder -= allocation[index]
    demands, sizes = [child.demand for child in children], [child.weight for child in children]
    distribute(allocation, remainder, unsatisfied, demands, sizes, [child.name for child in children])
    return allocation


def distribute(
    allocation: list[int],
    remainder: int,
    unsatisfied: list[int],
    demands: Sequence[int],
    weights: Sequence[int],
    ranks: Sequence[Rank],
) -> None:
    """Adds the remainder to the allocation by weight, round by round, until it is used up or all demand is met.

    Args:
        unsatisfied: indices of the children whose demand exceeds their allocation.
        ranks: order of children with equal fractions.
    """
    while remainder > 0 and unsatisfied:
        weight_sum = sum([weights[index] for index in unsatisfied])
        if weight_sum <= 0:
            return
        portions = apportion(remainder, weight_sum, [(weights[index], ranks[index]) for index in unsatisfied])
        remaining: list[int] = []
        remainder = 0
        for index, portion in zip(unsatisfied, portions, strict=True):
            size, demand = allocation[index] + portion, demands[index]
            if size < demand:
                remaining.append(index)
            else:
                remainder += size - demand
                size = demand
            allocation[index] = size
        unsatisfied = remaining


def apportion(amount: int, weights: int, parts: Sequence[tuple[int, Rank]]) -> list[int]:
    """Divides an amount by weight, whole units to the largest fractions, equal ones by rank.

    Args:
        amount: > 0.
        weights: sum of the weights, > 0.
        parts: (weight, rank) of each; one with a weight of 0 or less gets nothing.
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
    """Returns a child's min, in proportion where the sum of all children's minima exceeds the capacity."""
    if capacity >= min_sum:
        return own
    if capacity <= 0:
        return 0
    return capacity * own // min_sum


def scaled_minima(capacity: Mapping[str, int], minima: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
    """Returns the scaled minima of all children of a parent. A resource that the capacity lacks is not scaled."""
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
