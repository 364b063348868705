"""Messages of one followed context that arrived over the bus and are not folded yet.

All of them are hints. A batch is first waiting, and vouched for once Postgres has the digest of its last event.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence

from shared.log.announcements import Batch, Beacon

log = logging.getLogger(__name__)

BUFFERED_BYTES = 32 * 1024 * 1024

READS_WITHOUT_NEWS = 3
"""Reads that a wrong hint may cause at once; more of them wait, longer each time."""
LONGEST_PAUSE_S = 5.0


class ContextBuffer:
    """State of one context on the bus.

    Attributes:
        epoch: of the writer, as Postgres has it; beacons of a lower one are ignored.
        claimed_epoch, claimed: the highest epoch and seq that messages name; only a reason to read Postgres.
        head: the highest seq that Postgres is known to hold.
        at: when a message was last received, by the monotonic clock; seconds.
        polled: when the head was last read from Postgres, by the same clock.
        repair: the read that fetches missing events, while there is one.
        reading: the repair has begun to read; received batches wait for its end.
        vouching: Postgres is being asked for the digest of waiting batches.
        resumes: the event loop will go on with the vouched batches.
        vouched: batches that Postgres has vouched for, in order.
        refused: messages that no writer of this context sends, since the start.
    """

    def __init__(self, name: str) -> None:
        self.epoch = self.claimed_epoch = 0
        self.head = self.claimed = 0
        self.at = self.polled = time.monotonic()
        self.repair: asyncio.Task[None] | None = None
        self.reading = False
        self.vouching = False
        self.resumes = False
        self.vouched: deque[Batch] = deque()
        self.refused = 0
        self._name = name
        self._waiting: deque[tuple[Batch, int]] = deque()
        self._bytes = 0
        self._without_news = 0
        self._hints_from = 0.0

    @property
    def first(self) -> Batch | None:
        """The first waiting batch."""
        return self._waiting[0][0] if self._waiting else None

    @property
    def last_seq(self) -> int:
        """The last seq of the waiting batches; 0 without any."""
        return self._waiting[-1][0].last if self._waiting else 0

    def own(self, epoch: int) -> None:
        """Records that this process has appended."""
        self.epoch = max(self.epoch, epoch)
        self.at = time.monotonic()

    def beacon(self, beacon: Beacon) -> bool:
        """Records a beacon. Returns False for one of a superseded writer."""
        if beacon.epoch < self.epoch:
            return False
        self.claimed_epoch, self.at = max(self.claimed_epoch, beacon.epoch), time.monotonic()
        self.claimed = max(self.claimed, beacon.seq)
        return True

    def batch(self, data: bytes, batch: Batch) -> None:
        """Keeps a batch until its turn. Beyond the bound all are dropped: Postgres has them."""
        self.at = time.monotonic()
        if self._bytes + len(data) > BUFFERED_BYTES:
            self.drop()
        self.claimed = max(self.claimed, batch.last)
        late = batch.first < self.last_seq
        self._waiting.append((batch, len(data)))
        self._bytes += len(data)
        if late:  # as when a writer was just replaced
            self._waiting = deque(sorted(self._waiting, key=lambda waits: waits[0].first))

    def take(self) -> Batch:
        """Removes and returns the first waiting batch."""
        batch, size = self._waiting.popleft()
        self._bytes -= size
        return batch

    def unbroken(self) -> list[Batch]:
        """Returns the waiting batches up to the first gap."""
        found: list[Batch] = []
        for batch, _ in self._waiting:
            if any(not entry.data for entry in batch.entries):
                break
            if found and (batch.first, batch.previous) != (found[-1].last + 1, found[-1].entries[-1].digest):
                break
            found.append(batch)
        return found

    def vouch(self, batches: Sequence[Batch]) -> None:
        """Moves waiting batches to the vouched ones; not those that were dropped meanwhile."""
        there = {id(batch): batch for batch in batches}
        left: deque[tuple[Batch, int]] = deque()
        for batch, size in self._waiting:
            if there.get(id(batch)) is batch:
                self.vouched.append(batch)
                self._bytes -= size
            else:
                left.append((batch, size))
        self._waiting = left

    def drop(self) -> None:
        """Drops all batches."""
        self._waiting.clear()
        self.vouched.clear()
        self._bytes = 0

    def forget(self) -> None:
        """Drops everything received: it belongs to a log that was rewound."""
        self.epoch = self.claimed_epoch = self.head = self.claimed = 0
        self.drop()

    def refuse(self, reason: object) -> None:
        """Counts a message that no writer of this context sends."""
        self.refused += 1
        if self.refused.bit_count() == 1:  # the first, second, fourth ...
            log.warning(
                "refused an announcement", extra={"context": self._name, "error": str(reason), "refused": self.refused}
            )

    @property
    def heeds_hints(self) -> bool:
        """Reports whether a hint may cause a read now."""
        return time.monotonic() >= self._hints_from

    def read(self, *, news: bool) -> None:
        """Records that Postgres was read because of a hint, and whether it had news."""
        self._without_news = 0 if news else self._without_news + 1
        more = self._without_news - READS_WITHOUT_NEWS
        self._hints_from = time.monotonic() + min(LONGEST_PAUSE_S, 0.1 * 2 ** min(more, 10)) if more > 0 else 0.0
