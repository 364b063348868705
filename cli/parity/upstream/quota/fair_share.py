"""The sharing rule of one level with upstream's arithmetic: double precision for minima, 64 bits for sums of weights.

Source: spec/quota.md 3.1, 3.3, 3.4.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cli.parity.upstream.quota.quirks import Quirk, Quirks
from services.quota_ledger.runtime.fair_share import apportion


class Child(NamedTuple):
    """One child at a level, in one resource.

    Attributes:
        effective_min: its guaranteed amount here: its scaled min, or the amount allocated below it.
        demand: its request limited by its max.
        weight: its share of the remainder; 0 or less gets nothing beyond the effective_min.
        lends: whether the unused part of its effective_min goes to others.
    """

    name: str
    effective_min: int
    demand: int
    weight: int
    lends: bool


def share(capacity: int, children: Sequence[Child], quirks: Quirks) -> dict[str, int]:
    """Returns the runtime of each child by name."""
    runtime = {}
    for child in children:
        runtime[child.name] = (
            child.effective_min if child.demand > child.effective_min or not child.lends else child.demand
        )
    left = capacity - sum(runtime.values())
    borrowers = [child for child in children if child.demand > child.effective_min]
    while left > 0 and borrowers:
        weights = sum(child.weight for child in borrowers)
        weights = wrapped(weights) if Quirk.WEIGHTS_WRAP in quirks else weights
        if weights <= 0:
            break
        portions = apportion(left, weights, [(child.weight, child.name) for child in borrowers])
        left, hungry = 0, []
        for child, portion in zip(borrowers, portions, strict=True):
            runtime[child.name] += portion
            if runtime[child.name] < child.demand:
                hungry.append(child)
            else:
                left += runtime[child.name] - child.demand
                runtime[child.name] = child.demand
        borrowers = hungry
    return runtime


def scaled_minima(
    capacity: Mapping[str, int], minima: Sequence[Mapping[str, int]], quirks: Quirks
) -> list[dict[str, int]]:
    """Returns the minima in force of all children of one parent.

    A resource that is no key of the capacity is not scaled; in one that is, a child without a min gets one of 0.
    """
    sums: dict[str, int] = {}
    for own in minima:
        for name, size in own.items():
            sums[name] = sums.get(name, 0) + size
    short = {name: size for name, size in sums.items() if name in capacity and capacity[name] < size}
    return [
        {**own, **{name: _scaled(capacity[name], own.get(name, 0), size, quirks) for name, size in short.items()}}
        for own in minima
    ]


def _scaled(capacity: int, own: int, siblings: int, quirks: Quirks) -> int:
    if capacity <= 0:
        return 0
    if Quirk.FLOAT_SCALING in quirks:
        return int(float(capacity) * float(own) / float(siblings))
    return capacity * own // siblings


def wrapped(value: int) -> int:
    """Returns a number as 64 bits hold it."""
    return (value + 2**63) % 2**64 - 2**63
