"""Selects the logical CPUs of best-effort pods under a limit on their number. Source: spec/node-agent.md 3.1."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple


class Processor(NamedTuple):
    """A logical CPU with its core, socket and NUMA node."""

    cpu: int
    core: int
    socket: int
    node: int


def select(want: int, processors: Iterable[Processor]) -> list[int]:
    """Returns CPUs in the order in which they are selected; none when there are too few.

    CPUs lie in buckets by NUMA node and socket, larger ones first. Whole cores are picked bucket by bucket in turn, a
    pair each, while more than one CPU is needed; then single CPUs likewise, from the bucket at which the pairs stopped.
    """
    buckets = _buckets(processors)
    if want <= 0 or want > sum(map(len, buckets)):
        return []
    picked: list[int] = []
    taken: set[int] = set()
    at, lap = 0, 0  # a lap without progress ends the pairs; this is checked when the first bucket's turn comes again
    while want - len(picked) > 1:
        if at == 0:
            if lap and len(picked) == lap - 1:
                break
            lap = len(picked) + 1
        if pair := _pair(buckets[at], taken):
            picked += pair
            taken.update(pair)
        at = (at + 1) % len(buckets)
    while len(picked) < want:
        free = next((one.cpu for one in buckets[at] if one.cpu not in taken), None)
        if free is not None:
            picked.append(free)
            taken.add(free)
        at = (at + 1) % len(buckets)
    return picked


def _buckets(processors: Iterable[Processor]) -> list[list[Processor]]:
    by_place: dict[tuple[int, int], list[Processor]] = {}
    for one in processors:
        by_place.setdefault((one.node, one.socket), []).append(one)
    ordered = [sorted(bucket, key=lambda one: (one.core, one.cpu)) for bucket in by_place.values()]
    return sorted(ordered, key=lambda bucket: (-len(bucket), bucket[0].cpu))


def _pair(bucket: Sequence[Processor], taken: set[int]) -> tuple[int, int] | None:
    """Returns the first two free neighbours of one core."""
    for one, other in pairwise(bucket):
        if one.core == other.core and one.cpu not in taken and other.cpu not in taken:
            return one.cpu, other.cpu
    return None
