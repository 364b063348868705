"""Rejections of a node with their reasons, and the ids of those of a cycle.

A filter result is an integer, and a rejection has reasons with text.
"""

from itertools import count
from typing import NamedTuple
from weakref import WeakValueDictionary

from services.scheduler.framework.reasons import Reason


class Rejection(NamedTuple):
    """A rejection with its reasons.

    Attributes:
        unresolvable: preemption cannot help.
        error: the pod itself is at fault; upstream fails its cycle.
    """

    reasons: tuple[Reason, ...]
    unresolvable: bool = False
    error: bool = False


class _Identified:
    """A rejection with its id, for as long as a cycle refers to it."""

    __slots__ = ("__weakref__", "rejection", "rejection_id")

    def __init__(self, rejection_id: int, rejection: Rejection) -> None:
        self.rejection_id, self.rejection = rejection_id, rejection


class RejectionIds:
    """The rejections of all running cycles and requests, by id.

    An id is never used twice, and a rejection is dropped with the cycles that refer to it. So neither memory nor the
    record of a rejection depends on the age of the process, although texts of users' annotations are among the reasons.
    """

    def __init__(self) -> None:
        self._ids = count(1)
        self._rejections: WeakValueDictionary[int, _Identified] = WeakValueDictionary()

    def __getitem__(self, rejection_id: int) -> Rejection:
        return self._rejections[rejection_id].rejection

    def new(self, rejection: Rejection) -> _Identified:
        """Gives a rejection an id; the caller keeps the result for as long as the id is in use."""
        identified = _Identified(next(self._ids), rejection)
        self._rejections[identified.rejection_id] = identified
        return identified


class CycleRejections:
    """The rejections of one cycle; a plugin state and its copies share them."""

    def __init__(self, ids: RejectionIds) -> None:
        self._ids = ids
        self._met: dict[Rejection, _Identified] = {}

    def id_of(self, rejection: Rejection | None) -> int:
        """The filter result of a rejection: its id; 0 for none."""
        if rejection is None:
            return 0
        found = self._met.get(rejection)
        if found is None:
            found = self._met[rejection] = self._ids.new(rejection)
        return found.rejection_id
