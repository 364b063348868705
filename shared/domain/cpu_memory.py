"""Arithmetic of cpu and memory for all formulas: amounts in nanos (10^-9 of the unit), rounded as upstream rounds.

A double is used only where upstream has one: the product or quotient is truncated, or rounded up, to a whole milli or
unit.

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
        """Adds."""
        return Amount(self.cpu + other.cpu, self.memory + other.memory)

    def minus(self, other: "Amount") -> "Amount":
        """Subtracts; may be negative."""
        return Amount(self.cpu - other.cpu, self.memory - other.memory)

    def largest(self, other: "Amount") -> "Amount":
        """Returns the maximum of each part."""
        return Amount(max(self.cpu, other.cpu), max(self.memory, other.memory))

    def smallest(self, other: "Amount") -> "Amount":
        """Returns the minimum of each part."""
        return Amount(min(self.cpu, other.cpu), min(self.memory, other.memory))

    def not_negative(self) -> "Amount":
        """Returns each part, or 0 if it is negative."""
        return Amount(max(self.cpu, 0), max(self.memory, 0))

    def divided(self, parts: int) -> "Amount":
        """Divides into equal parts."""
        return Amount(div(self.cpu, parts), div(self.memory, parts))


ZERO = Amount()


def mul_milli(nanos: int, factor: float) -> int:
    """Multiplies cpu; truncated to whole thousandths."""
    return math.trunc(float(milli(nanos)) * factor) * MILLI


def mul_int(nanos: int, factor: float) -> int:
    """Multiplies memory; truncated to whole units."""
    return math.trunc(float(value(nanos)) * factor) * NANO


def div(nanos: int, parts: int) -> int:
    """Divides, rounded up to whole thousandths, also for memory; division by 0 returns the amount itself."""
    return math.ceil(float(milli(nanos)) / parts) * MILLI if parts else nanos


def reserve_ratio(percent: int) -> float:
    """Returns the share that a reclaim percentage protects; negative beyond 100."""
    return float(100 - percent) / 100.0


def scaled(amount: Amount, cpu: float, memory: float) -> Amount:
    """Multiplies each part by a factor, truncated to milli-cores and bytes."""
    return Amount(mul_milli(amount.cpu, cpu), mul_int(amount.memory, memory))
