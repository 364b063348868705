"""Windows of messages on their way into a stream, each message behind the one before it."""

import asyncio
from collections import deque
from collections.abc import Callable

from services.audit.cloudevent import CloudEvents
from shared.bus.jetstream import Outgoing, Streams
from shared.log.raw_rows import RawRow

UNDER_WAY = 4
"""Windows whose acknowledgements are awaited together; the server queues at most 10,000 messages of a stream."""
WINDOW_BYTES = 2 * 1024 * 1024


class Chain:
    """Windows of messages on their way into a stream."""

    def __init__(
        self, streams: Streams, stored: Callable[[int, int], None], events: CloudEvents, last_seq: int
    ) -> None:
        self._streams = streams
        self._stored = stored
        self._events = events
        self._last_seq: int | None = last_seq
        self._last_id = ""
        self._window: list[Outgoing] = []
        self._bytes = 0
        self._upto = 0
        self._under_way: deque[tuple[asyncio.Task[int], int, int]] = deque()

    def add(self, row: RawRow) -> None:
        """Put an event into the window that is given away next."""
        message = self._events.message(row)
        self._window.append(message)
        self._bytes += len(message.data)
        self._upto = row.seq

    def full(self, most: int) -> bool:
        """Whether the window holds so many events, or enough bytes."""
        return len(self._window) >= most or self._bytes >= WINDOW_BYTES

    async def give(self) -> None:
        """Hand the window to the bus; wait while too many are under way."""
        if not self._window:
            return
        window, self._window, self._bytes = self._window, [], 0
        stored = await self._streams.publish_chain(window, last_id=self._last_id, last_seq=self._last_seq)
        self._last_id, self._last_seq = window[-1].id, None
        self._under_way.append((asyncio.create_task(stored), self._upto, len(window)))
        while len(self._under_way) >= UNDER_WAY:
            await self._first()

    async def settle(self) -> None:
        """Wait until all that was given away is stored."""
        while self._under_way:
            await self._first()

    def abandon(self) -> None:
        """Wait for nothing more."""
        for task, _, _ in self._under_way:
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def _first(self) -> None:
        task, upto, count = self._under_way[0]
        await task
        self._under_way.popleft()
        self._stored(upto, count)
