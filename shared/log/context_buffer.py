"""What was heard of one followed context on the bus and has not been applied yet."""

import asyncio
import time
from collections import deque

from shared.log.announcements import Batch, Beacon

BUFFERED_BYTES = 32 * 1024 * 1024


class ContextBuffer:
    """One context: who writes it, where its head is said to be, and the batches that wait for their turn.

    Attributes:
        epoch: the highest that was heard; what a lower one still says is ignored.
        head: the highest seq that was heard of.
        at: when something was heard last, by the monotonic clock; seconds.
        repair: the read that fetches what is missing, while there is one.
        reading: it has begun to read: what is heard waits for its end.
        resumes: the event loop will go on with what waits.
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
        """The first batch that waits."""
        return self._waiting[0][0] if self._waiting else None

    @property
    def last_seq(self) -> int:
        """The seq that what waits reaches; 0 when nothing does."""
        return self._waiting[-1][0].last if self._waiting else 0

    def own(self, epoch: int) -> None:
        """This process has appended itself."""
        self.epoch = max(self.epoch, epoch)
        self.at = time.monotonic()

    def beacon(self, beacon: Beacon) -> bool:
        """Takes note of a beacon; False for an older writer's."""
        return self._note(beacon.epoch, beacon.seq)

    def batch(self, data: bytes, batch: Batch) -> bool:
        """Keeps a batch until its turn; False for an older writer's last words. Too many are all dropped: Postgres has them."""
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
        """The first batch, no longer kept."""
        batch, size = self._waiting.popleft()
        self._bytes -= size
        return batch

    def drop(self) -> None:
        """Forgets what waits."""
        self._waiting.clear()
        self._bytes = 0

    def forget(self) -> None:
        """Forgets all that was heard: it was of a log that is no more."""
        self.epoch = self.head = 0
        self.drop()

    def _note(self, epoch: int, seq: int) -> bool:
        if epoch < self.epoch:
            return False
        self.epoch, self.head, self.at = epoch, max(self.head, seq), time.monotonic()
        return True
