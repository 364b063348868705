"""The outbox: messages that wait to be sent, within a bound of bytes.

Actions come before inventories, those before reports, each oldest first. An inventory is complete: a newer one replaces
the one that waits.
"""

import asyncio
import logging
from collections import deque
from typing import NamedTuple

from shared.agents.subjects import ACTION, INVENTORY, REPORT

log = logging.getLogger(__name__)


class Message(NamedTuple):
    """A report, action or inventory, encoded.

    Attributes:
        kind: `REPORT`, `ACTION` or `INVENTORY` of shared/agents/subjects.py.
        seq: its number, for the log.
    """

    kind: str
    seq: int
    data: bytes


class Outbox:
    """Messages until ingest, or the broker, has accepted them.

    Attributes:
        sent, refused, dropped: messages accepted, messages rejected for good, messages dropped for lack of space.
        waiting_bytes: of the messages that wait.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.sent = 0
        self.refused = 0
        self.dropped = 0
        self.waiting_bytes = 0
        self._limit_bytes = limit_bytes
        self._waiting: dict[str, deque[Message]] = {ACTION: deque(), INVENTORY: deque(), REPORT: deque()}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def actions(self) -> int:
        """The number of actions that wait."""
        return len(self._waiting[ACTION])

    def put(self, message: Message) -> None:
        """Adds a message; without space the oldest report is dropped, then the oldest action."""
        while message.kind == INVENTORY and self._waiting[INVENTORY]:
            self._take(self._waiting[INVENTORY])
        self._waiting[message.kind].append(message)
        self.waiting_bytes += len(message.data)
        while self.waiting_bytes > self._limit_bytes and len(self) > 1:
            self._take(self._waiting[REPORT] or self._waiting[ACTION] or self._waiting[INVENTORY])
            self.dropped += 1
            if self.dropped.bit_count() == 1:  # the first, second, fourth ...
                log.warning(
                    "reports are not accepted; the oldest are dropped",
                    extra={"dropped": self.dropped, "waiting": len(self), "limit_bytes": self._limit_bytes},
                )
        filled, self._filled = self._filled, asyncio.Event()
        filled.set()  # wakes all waiting senders; a new event serves the next message

    async def next(self, *kinds: str) -> Message:
        """Returns the next message, as soon as there is one; it stays queued until `done`.

        Args:
            kinds: only these; any without one.
        """
        while True:
            for kind in kinds or self._waiting:
                if waiting := self._waiting[kind]:
                    return waiting[0]
            filled = self._filled
            await filled.wait()

    def done(self, message: Message, refused: str = "") -> None:
        """Removes a message that was accepted, or rejected for good; it may have been dropped meanwhile."""
        waiting = self._waiting[message.kind]
        if waiting and waiting[0] is message:
            self._take(waiting)
        if refused:
            self.refuse(message.kind, message.seq, refused)
        else:
            self.sent += 1

    def refuse(self, kind: str, seq: int, reason: str) -> None:
        """Records that ingest rejected a message for good."""
        self.refused += 1
        if self.refused.bit_count() == 1:
            log.error("ingest rejects messages of this agent", extra={"kind": kind, "seq": seq, "reason": reason})

    def _take(self, waiting: deque[Message]) -> None:
        self.waiting_bytes -= len(waiting.popleft().data)
