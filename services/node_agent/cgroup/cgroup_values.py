"""What an amount of cpu is in the words of cgroup files. All integers. Source: spec/node-agent.md 2.3."""

from shared.errors import KoordError

PERIOD_US = 100_000
"""The CFS period; assumed to be this everywhere."""
LEAST_SHARES, MOST_SHARES = 2, 262_144
LEAST_WEIGHT, MOST_WEIGHT = 1, 10_000
UNLIMITED = 2**63 - 1
"""What `max` and `-1` are worth when two limits are compared."""


class OutOfRange(KoordError):
    """A number that the other cgroup version has no counterpart for."""

    def __init__(self, what: str, found: int, least: int, most: int) -> None:
        super().__init__(f"{what} {found} lie outside of {least}..{most}")


def shares(cpu_milli: int) -> int:
    """`cpu.shares` of milli-cores: 1024 a core, within 2..262144; nothing counts as 2."""
    return min(max(cpu_milli * 1024 // 1000, LEAST_SHARES), MOST_SHARES) if cpu_milli > 0 else LEAST_SHARES


def quota(cpu_milli: int) -> int:
    """`cpu.cfs_quota_us` of milli-cores: microseconds a period, at least 1000; -1 (no limit) for nothing."""
    found = cpu_milli * PERIOD_US // 1000
    return -1 if found <= 0 else max(found, 1000)


def weight(of_shares: int) -> int:
    """`cpu.weight` (1..10000) of `cpu.shares`.

    Raises:
        OutOfRange: the shares are none.
    """
    if not LEAST_SHARES <= of_shares <= MOST_SHARES:
        raise OutOfRange("cpu shares", of_shares, LEAST_SHARES, MOST_SHARES)
    return min(max(1 + (of_shares - 2) * 9_999 // 262_142, LEAST_WEIGHT), MOST_WEIGHT)


def shares_of_weight(of_weight: int) -> int:
    """`cpu.shares` of a `cpu.weight`; no round trip, as weights are coarser.

    Raises:
        OutOfRange: the weight is none.
    """
    if not LEAST_WEIGHT <= of_weight <= MOST_WEIGHT:
        raise OutOfRange("a cpu weight of", of_weight, LEAST_WEIGHT, MOST_WEIGHT)
    return min(max((of_weight - 1) * 262_142 // 9_999 + 2, LEAST_SHARES), MOST_SHARES)
