"""The outbox: messages that wait to be sent, within a bound of bytes.

Actions come before inventories, those before reports, each oldest first. An inventory is complete: a newer one replaces
the one that waits. Reports of a longer outage move to disk, and are sent after all newer ones, oldest first: what is
new never waits for what is old.
"""

import asyncio
import logging
from collections import deque
from itertools import islice
from typing import NamedTuple

from services.node_agent.transport.backlog_files import BacklogFiles
from shared.agents.subjects import ACTION, INVENTORY, REPORT

log = logging.getLogger(__name__)

REPORTS_IN_A_FILE = 20
"""Reports that move to disk together: at most these are lost with the power of a node that has no connection."""
MAX_FILE_BYTES = 900_000
"""Bytes of the reports of one file before compression, apart from a single larger one: its message is always taken."""


class Message(NamedTuple):
    """A report, action or inventory, encoded.

    Attributes:
        kind: `REPORT`, `ACTION` or `INVENTORY` of shared/agents/subjects.py.
        seq: its number, for the log.
        file: of the kept reports that it is; empty: it waits in memory.
    """

    kind: str
    seq: int
    data: bytes
    file: str = ""


class Outbox:
    """Messages until ingest, or the broker, has accepted them.

    Attributes:
        sent, refused, dropped: messages accepted, messages rejected for good, messages dropped for lack of space.
        waiting_bytes: of the messages that wait in memory.
    """

    def __init__(self, limit_bytes: int, files: BacklogFiles | None = None) -> None:
        """Makes an outbox without messages.

        Args:
            files: keep reports of a longer outage; None: they are dropped beyond the limit.
        """
        self.sent = 0
        self.refused = 0
        self.dropped = 0
        self.waiting_bytes = 0
        self._limit_bytes = limit_bytes
        self._files = files
        self._waiting: dict[str, deque[Message]] = {ACTION: deque(), INVENTORY: deque(), REPORT: deque()}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def actions(self) -> int:
        """The number of actions that wait."""
        return len(self._waiting[ACTION])

    @property
    def kept(self) -> tuple[int, int]:
        """The number of reports on disk, and the bytes of their files."""
        return (0, 0) if self._files is None else (self._files.reports, self._files.bytes)

    @property
    def dropped_from_disk(self) -> int:
        """Reports that were dropped from disk for lack of space."""
        return 0 if self._files is None else self._files.dropped

    def put(self, message: Message) -> None:
        """Adds a message; without space the oldest report is dropped, then the oldest action."""
        while message.kind == INVENTORY and self._waiting[INVENTORY]:
            self._take(self._waiting[INVENTORY])
        self._waiting[message.kind].append(message)
        self.waiting_bytes += len(message.data)
        if len(self._waiting[REPORT]) > REPORTS_IN_A_FILE:
            self._keep(REPORTS_IN_A_FILE)
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
            if REPORT in (kinds or self._waiting) and self._files is not None and (oldest := self._files.first()):
                return Message(REPORT, 0, oldest[1], oldest[0])
            filled = self._filled
            await filled.wait()

    def done(self, message: Message, refused: str = "") -> None:
        """Removes a message that was accepted, or rejected for good; it may have been dropped meanwhile."""
        waiting = self._waiting[message.kind]
        if message.file and self._files is not None:
            self._files.remove(message.file)
        elif waiting and waiting[0] is message:
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

    def keep_all(self) -> None:
        """Moves all waiting reports to disk, at the end of the process."""
        while waiting := len(self._waiting[REPORT]):
            if not self._keep(min(waiting, REPORTS_IN_A_FILE)):
                return

    def _keep(self, count: int) -> bool:
        """Moves the oldest reports to disk; reports whether they are there."""
        waiting = self._waiting[REPORT]
        together, size = list[bytes](), 0
        for message in islice(waiting, count):
            size += len(message.data)
            if together and size > MAX_FILE_BYTES:
                break
            together.append(message.data)
        if self._files is None or not self._files.put(together):
            return False
        for _ in together:
            self._take(waiting)
        return True

    def _take(self, waiting: deque[Message]) -> None:
        self.waiting_bytes -= len(waiting.popleft().data)
