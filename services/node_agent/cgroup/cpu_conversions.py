"""Converts amounts of cpu to values of cgroup files, and v1 values to v2 and back. All integers.

Source: spec/node-agent.md 2.3.
"""

from shared.errors import KoordError

PERIOD_US = 100_000
"""The CFS period in microseconds; assumed on every node."""
LEAST_SHARES, MOST_SHARES = 2, 262_144
LEAST_WEIGHT, MOST_WEIGHT = 1, 10_000
UNLIMITED = 2**63 - 1
"""The number that stands for `max` and `-1` when two limits are compared."""


class OutOfRange(KoordError):
    """A number without counterpart in the other cgroup version."""

    def __init__(self, what: str, found: int, least: int, most: int) -> None:
        super().__init__(f"{what} {found} lie outside of {least}..{most}")


def shares(cpu_milli: int) -> int:
    """`cpu.shares` of milli-cores: 1024 a core, within 2..262144; 2 for no cpu."""
    return min(max(cpu_milli * 1024 // 1000, LEAST_SHARES), MOST_SHARES) if cpu_milli > 0 else LEAST_SHARES


def quota(cpu_milli: int) -> int:
    """`cpu.cfs_quota_us` of milli-cores: microseconds a period, at least 1000; -1 (no limit) for no cpu."""
    found = cpu_milli * PERIOD_US // 1000
    return -1 if found <= 0 else max(found, 1000)


def weight(of_shares: int) -> int:
    """`cpu.weight` (1..10000) of `cpu.shares`.

    Raises:
        OutOfRange: the shares lie outside of 2..262144.
    """
    if not LEAST_SHARES <= of_shares <= MOST_SHARES:
        raise OutOfRange("cpu shares", of_shares, LEAST_SHARES, MOST_SHARES)
    return min(max(1 + (of_shares - 2) * 9_999 // 262_142, LEAST_WEIGHT), MOST_WEIGHT)


def shares_of_weight(of_weight: int) -> int:
    """`cpu.shares` of a `cpu.weight`. Weights are coarser, so the conversion back may differ.

    Raises:
        OutOfRange: the weight lies outside of 1..10000.
    """
    if not LEAST_WEIGHT <= of_weight <= MOST_WEIGHT:
        raise OutOfRange("a cpu weight of", of_weight, LEAST_WEIGHT, MOST_WEIGHT)
    return min(max((of_weight - 1) * 262_142 // 9_999 + 2, LEAST_SHARES), MOST_SHARES)
