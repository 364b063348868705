"""Messages that a process rejected, by subject: the bus lets few logins use each, so the subject names the sender.

Kept in memory for a while, for `/statusz` and `koord doctor`.
"""

import time
from collections.abc import Callable

import msgspec

from shared.kube.instants import SECOND

REMEMBERED_NS = 15 * 60 * SECOND
MOST_SUBJECTS = 1000
"""Subjects with a node's name in them are many; beyond these the one that was silent for longest is forgotten."""

_MOST_REASON = 200  # characters


class RejectedMessages(msgspec.Struct, frozen=True):
    """The rejected messages on one subject.

    Attributes:
        reason: of the newest.
        since_ns, last_ns: the first and the newest, nanoseconds since the epoch.
    """

    subject: str
    count: int
    reason: str
    since_ns: int
    last_ns: int


class RejectionRecord:
    """Rejected messages of the newest minutes."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._found: dict[str, RejectedMessages] = {}
        self._now_ns = now_ns

    def add(self, subject: str, reason: str) -> None:
        """Records one message."""
        now_ns, before = self._now_ns(), self._found.pop(subject, None)
        if before is None or now_ns - before.last_ns > REMEMBERED_NS:
            before = RejectedMessages(subject, 0, "", now_ns, now_ns)
        self._found[subject] = RejectedMessages(
            subject, before.count + 1, reason[:_MOST_REASON], before.since_ns, now_ns
        )
        if len(self._found) > MOST_SUBJECTS:
            del self._found[next(iter(self._found))]

    def newest(self) -> tuple[RejectedMessages, ...]:
        """Returns what was rejected within the last minutes, by subject."""
        earliest_ns = self._now_ns() - REMEMBERED_NS
        return tuple(found for _, found in sorted(self._found.items()) if found.last_ns >= earliest_ns)
