"""Lists that lack so many of the nodes or pods in the log that they are not believed.

One empty or half list from a server that restarts, a restored backup or a proxy would record the deletion of what it
lacks, and the scheduler would place other pods there. Such a list deletes nothing: effects stop, the list is repeated,
and if it stays short an operator confirms it (`koord cluster confirm`).
"""

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple

from services.gateway.kube_api.resources import ESSENTIAL
from shared.kube.short_lists import NAMED, ShortList

SHOWN = 8
"""So many of the newest lists that were shown may still be confirmed: an operator may read one while others arrive."""


class ListResult(Enum):
    """Result of a complete list: equal to the log or larger, without objects that the log has, or not believed."""

    COMPLETE = "complete"
    REMOVED = "removed"
    SHORT = "short"


class ShortListLimits(NamedTuple):
    """A list that lacks at least `least` objects, and more than `percent` of those in the log, is short."""

    percent: float
    least: int

    def exceeded(self, known: int, missing: int) -> bool:
        """Returns whether a list is short that lacks `missing` of `known` objects."""
        return missing >= self.least and missing * 100 > known * self.percent


class HeldList(NamedTuple):
    """A list that is not believed.

    Attributes:
        known: number of objects in the log.
        missing: keys of those that the list lacks, sorted.
        lists: how many consecutive lists were short.
    """

    resource: str
    known: int
    missing: tuple[str, ...]
    lists: int

    def describe(self) -> ShortList:
        """Returns what operators see of it."""
        return ShortList(self.resource, self.known, len(self.missing), self.missing[:NAMED], self.lists)


class ShortLists:
    """Short lists by resource.

    Attributes:
        held: the newest short list of each resource that has one.
    """

    def __init__(self, limits: ShortListLimits) -> None:
        self.held: dict[str, HeldList] = {}
        self._limits = limits
        self._shown: dict[str, dict[int, HeldList]] = {}
        self._confirmed: dict[str, frozenset[str]] = {}

    def believes(self, resource: str, known: int, missing: Collection[str]) -> bool:
        """Returns whether to believe a list, and holds it if not.

        Objects whose absence was confirmed do not count: pods are deleted also between a list and its confirmation.

        Args:
            known: number of objects in the log.
            missing: keys of those that the list lacks.
        """
        confirmed = self._confirmed.pop(resource, frozenset())
        more = [key for key in missing if key not in confirmed]
        if resource not in ESSENTIAL or not self._limits.exceeded(known - len(missing) + len(more), len(more)):
            self.held.pop(resource, None)
            self._shown.pop(resource, None)
            return True
        before = self.held.get(resource)
        lists = before.lists + 1 if before else 1
        self.held[resource] = HeldList(resource, known, tuple(sorted(missing)), lists)
        return False

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
