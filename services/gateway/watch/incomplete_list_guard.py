"""Lists that lack so many of the objects in the log that they are not believed.

One empty or half list from a server that restarts, a restored backup or a proxy would record the deletion of what it
lacks: the scheduler would place other pods there, and the ledger would forget quotas. Such a list of nodes, pods or
quotas deletes nothing: effects stop, the list is repeated, and if it stays short an operator confirms it (`koord
cluster confirm`). A list that lacks a few objects, but a large share of a small kind, is repeated once before it is
believed.
"""

import time
from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple

from services.gateway.kube_api.resources import ESSENTIAL
from shared.kube.elastic_quota import RESOURCES as QUOTAS
from shared.kube.short_lists import NAMED, ShortList

HELD = ESSENTIAL | set(QUOTAS)
"""Resources whose short lists an operator confirms: what others may use follows from these objects."""

SHOWN = 8
"""So many of the newest lists that were shown may still be confirmed: an operator may read one while others arrive."""


class ListResult(Enum):
    """Result of a complete list: equal to the log or larger, without objects that the log has, to be repeated once, or
    not believed.
    """

    COMPLETE = "complete"
    REMOVED = "removed"
    DOUBTFUL = "doubtful"
    SHORT = "short"

    @property
    def believed(self) -> bool:
        """Returns whether the list is the state of the cluster."""
        return self in {ListResult.COMPLETE, ListResult.REMOVED}


class ShortListLimits(NamedTuple):
    """A list that lacks at least `least` objects, and more than `percent` of those in the log, is short."""

    percent: float
    least: int

    def large_share(self, known: int, missing: int) -> bool:
        """Returns whether `missing` are too many of `known` objects for a list to be believed at once."""
        return missing * 100 > known * self.percent


class HeldList(NamedTuple):
    """A list that is not believed.

    Attributes:
        known: number of objects in the log.
        missing: keys of those that the list lacks, sorted.
        lists: how many consecutive lists were short.
        since_ns: instant of the first of them, nanoseconds since the epoch.
    """

    resource: str
    known: int
    missing: tuple[str, ...]
    lists: int
    since_ns: int

    def describe(self) -> ShortList:
        """Returns what operators see of it."""
        return ShortList(self.resource, self.known, len(self.missing), self.missing[:NAMED], self.lists, self.since_ns)


class ShortLists:
    """Short lists by resource.

    Attributes:
        held: the newest short list of each resource that has one.
    """

    def __init__(self, limits: ShortListLimits, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self.held: dict[str, HeldList] = {}
        self._limits = limits
        self._shown: dict[str, dict[int, HeldList]] = {}
        self._confirmed: dict[str, frozenset[str]] = {}
        self._doubted: dict[str, frozenset[str]] = {}

    def believes(self, resource: str, known: int, missing: Collection[str], added: int = 0) -> bool:
        """Returns whether to believe a list; if not, it is held, or repeated once.

        Objects whose absence was confirmed do not count: pods are deleted also between a list and its confirmation.

        Args:
            known: number of objects in the log.
            missing: keys of those that the list lacks.
            added: number of the known objects that this list has added, which say nothing about what it lacks.
        """
        confirmed = self._confirmed.get(resource, frozenset())
        doubted = self._doubted.pop(resource, frozenset())
        more = frozenset(missing) - confirmed
        left = max(known - added - len(missing), 0)
        if (
            resource in HELD
            and len(more) >= self._limits.least
            and self._limits.large_share(left + len(more), len(more))
        ):
            self._confirmed.pop(resource, None)
            before = self.held.get(resource)
            lists = before.lists + 1 if before else 1
            since_ns = before.since_ns if before else self._now_ns()
            self.held[resource] = HeldList(resource, known, tuple(sorted(missing)), lists, since_ns)
            return False
        new = len(more - doubted)
        if self._limits.large_share(left + new, new):
            self._doubted[resource] = more
            return False
        for of_resource in (self.held, self._shown, self._confirmed):
            of_resource.pop(resource, None)
        return True

    def halts(self) -> list[str]:
        """Returns a text about each held list, for those who only look: this makes no list one that may be confirmed."""
        return [held.describe().halt for held in self.held.values()]

    def show(self) -> list[ShortList]:
        """Returns the held lists for operators, who may confirm what they have seen."""
        for resource, held in self.held.items():
            shown = self._shown.setdefault(resource, {})
            shown[held.lists] = held
            for lists in sorted(shown)[:-SHOWN]:
                del shown[lists]
        return [held.describe() for held in self.held.values()]

    def confirm(self, resource: str, lists: int) -> ShortList | None:
        """Confirms the objects that a repeated list lacked; None if it was not shown, or the resource is not held.

        The next list is believed if it lacks few others.
        """
        shown = self._shown.get(resource, {}).get(lists)
        if shown is None or not shown.describe().repeated:
            return None
        self._confirmed[resource] = frozenset(shown.missing)
        return shown.describe()
