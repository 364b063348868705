"""Shares of last-level cache and memory bandwidth: schemata of the groups LSR, LS and BE. Source: spec/node-agent.md 3.6.

Q: a CPU vendor that is neither Intel nor AMD counts as Intel.
"""

from collections.abc import Iterable

from shared.domain.qos import QoS, qos
from shared.kube.pod import Pod

GROUPS = ("LSR", "LS", "BE")
AMD = "AuthenticAMD"
_GROUP_OF = {QoS.LSE: "LSR", QoS.LSR: "LSR", QoS.LS: "LS", QoS.BE: "BE"}


def group_of(pod: Pod) -> str | None:
    """The group of a pod's processes; None for SYSTEM pods."""
    return _GROUP_OF.get(qos(pod))


def cache_mask(root: str, start_percent: int, end_percent: int) -> int | None:
    """The ways of the cache from one percentage to another, rounded up; None when there are no such.

    Args:
        root: the mask of all ways, hexadecimal.
    """
    whole = int(root, 16)
    ways = whole.bit_length()
    if whole != (1 << ways) - 1 or not 0 <= start_percent < end_percent <= 100:
        return None
    start, end = -(-ways * start_percent // 100), -(-ways * end_percent // 100)
    return (1 << end) - (1 << start)


def bandwidth(percent: int, vendor: str) -> int | None:
    """The value of MB: Intel takes tens of percent, AMD eighths of GB/s (2048 for all). None when it is no percentage."""
    if not 0 < percent <= 100:
        return None
    if vendor == AMD:
        return 2048 if percent == 100 else 160 * percent // 100
    return -(-percent // 10) * 10


def line(kind: str, value: str, caches: Iterable[int]) -> str:
    """A line of schemata, such as `L3:0=f;1=f;`, with its newline."""
    return f"{kind}:{''.join(f'{cache}={value};' for cache in sorted(caches))}\n"
