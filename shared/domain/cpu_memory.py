"""The operations that all formulas are built on: amounts in nanos (10^-9 of the unit), rounded as upstream rounds.

A double enters only where upstream has one: a product or quotient with it is cut off, or rounded up, to a whole milli or unit.

Source: spec/slo-controller.md 0.2; upstream pkg/util/resource.go.
"""

import math
from typing import NamedTuple

from shared.kube.quantity import NANO, milli, value

MILLI = 1_000_000
"""Nanos in a thousandth."""


class Amount(NamedTuple):
    """Cpu in nano-cores and memory in nano-bytes."""

    cpu: int = 0
    memory: int = 0

    def plus(self, other: "Amount") -> "Amount":
        """Sum."""
        return Amount(self.cpu + other.cpu, self.memory + other.memory)

    def minus(self, other: "Amount") -> "Amount":
        """Difference; may be negative."""
        return Amount(self.cpu - other.cpu, self.memory - other.memory)

    def largest(self, other: "Amount") -> "Amount":
        """The larger of each."""
        return Amount(max(self.cpu, other.cpu), max(self.memory, other.memory))

    def smallest(self, other: "Amount") -> "Amount":
        """The smaller of each."""
        return Amount(min(self.cpu, other.cpu), min(self.memory, other.memory))

    def not_negative(self) -> "Amount":
        """With 0 for what is less."""
        return Amount(max(self.cpu, 0), max(self.memory, 0))

    def divided(self, parts: int) -> "Amount":
        """One of so many equal parts."""
        return Amount(div(self.cpu, parts), div(self.memory, parts))


ZERO = Amount()


def mul_milli(nanos: int, factor: float) -> int:
    """A product in whole thousandths, cut off: cpu."""
    return math.trunc(float(milli(nanos)) * factor) * MILLI


def mul_int(nanos: int, factor: float) -> int:
    """A product in whole units, cut off: memory."""
    return math.trunc(float(value(nanos)) * factor) * NANO


def div(nanos: int, parts: int) -> int:
    """A quotient in whole thousandths, rounded up, of memory too; by 0 it is the amount itself."""
    return math.ceil(float(milli(nanos)) / parts) * MILLI if parts else nanos


def reserve_ratio(percent: int) -> float:
    """The share that a reclaim percentage protects; negative beyond 100."""
    return float(100 - percent) / 100.0


def scaled(amount: Amount, cpu: float, memory: float) -> Amount:
    """An amount by a factor each, cut off to milli-cores and bytes."""
    return Amount(mul_milli(amount.cpu, cpu), mul_int(amount.memory, memory))
