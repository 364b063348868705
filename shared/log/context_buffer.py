"""Messages of one followed context that arrived over the bus and are not folded yet."""

import asyncio
import time
from collections import deque

from shared.log.announcements import Batch, Beacon

BUFFERED_BYTES = 32 * 1024 * 1024


class ContextBuffer:
    """State of one context on the bus: its writer's epoch, its announced head, and the batches that wait for their
    turn.

    Attributes:
        epoch: the highest received; messages of a lower one are ignored.
        head: the highest announced seq.
        at: when a message was last received, by the monotonic clock; seconds.
        repair: the read that fetches missing events, while there is one.
        reading: the repair has begun to read; received batches wait for its end.
        resumes: the event loop will go on with the waiting batches.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.head = 0
        self.at = time.monotonic()
        self.repair: asyncio.Task[None] | None = None
        self.reading = False
        self.resumes = False
        self._waiting: deque[tuple[Batch, int]] = deque()
        self._bytes = 0

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
        return self._note(beacon.epoch, beacon.seq)

    def batch(self, data: bytes, batch: Batch) -> bool:
        """Keeps a batch until its turn. Returns False for one of a superseded writer. Beyond the bound all are dropped:
        Postgres has them.
        """
        if not self._note(batch.epoch, batch.last):
            return False
        if self._bytes + len(data) > BUFFERED_BYTES:
            self.drop()
        late = batch.first < self.last_seq
        self._waiting.append((batch, len(data)))
        self._bytes += len(data)
        if late:  # as when a writer was just replaced
            self._waiting = deque(sorted(self._waiting, key=lambda waits: waits[0].first))
        return True

    def take(self) -> Batch:
        """Removes and returns the first batch."""
        batch, size = self._waiting.popleft()
        self._bytes -= size
        return batch

    def drop(self) -> None:
        """Drops the waiting batches."""
        self._waiting.clear()
        self._bytes = 0

    def forget(self) -> None:
        """Drops everything received: it belongs to a log that was rewound."""
        self.epoch = self.head = 0
        self.drop()

    def _note(self, epoch: int, seq: int) -> bool:
        if epoch < self.epoch:
            return False
        self.epoch, self.head, self.at = epoch, max(self.head, seq), time.monotonic()
        return True
