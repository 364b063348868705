"""Lists that lack so many of the nodes or pods in the log that they are not believed.

One empty or half list from a server that restarts, a restored backup or a proxy would record the deletion of what it
lacks, and the scheduler would place other pods there. Such a list deletes nothing: effects stop, the list is repeated,
and if it stays short an operator confirms it (`koord cluster confirm`).
"""

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple

from services.gateway.kube_api.resources import ESSENTIAL
from shared.kube.short_lists import ShortList


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


class ShortLists:
    """Short lists by resource.

    Attributes:
        held: the newest short list of each resource that has one.
    """

    def __init__(self, limits: ShortListLimits) -> None:
        self.held: dict[str, ShortList] = {}
        self._limits = limits
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
            return True
        before = self.held.get(resource)
        lists = before.lists + 1 if before else 1
        self.held[resource] = ShortList(resource, known=known, missing=tuple(sorted(missing)), lists=lists)
        return False

    def confirm(self) -> list[ShortList]:
        """Confirms each held list that was repeated and is still short; the next list of the resource is believed."""
        confirmed = [found for found in self.held.values() if found.repeated]
        self._confirmed |= {found.resource: frozenset(found.missing) for found in confirmed}
        return confirmed
