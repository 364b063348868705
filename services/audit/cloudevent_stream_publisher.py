"""Publishes events to a stream in windows; each message names its predecessor."""

import asyncio
from collections import deque
from collections.abc import Callable

from services.audit.cloudevent import CloudEvents
from shared.bus.jetstream import Outgoing, Streams
from shared.log.raw_rows import RawRow

MAX_PENDING_WINDOWS = 4
"""Windows without acknowledgement yet; the server queues at most 10,000 messages of a stream."""
WINDOW_BYTES = 2 * 1024 * 1024


class StreamPublisher:
    """The window being filled, and the windows that wait for their acknowledgement."""

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
        self._last_window_seq = 0
        self._pending: deque[tuple[asyncio.Task[int], int, int]] = deque()

    def add(self, row: RawRow) -> None:
        """Adds an event to the window."""
        message = self._events.message(row)
        self._window.append(message)
        self._bytes += len(message.data)
        self._last_window_seq = row.seq

    def full(self, most: int) -> bool:
        """Reports whether the window has `most` events, or WINDOW_BYTES."""
        return len(self._window) >= most or self._bytes >= WINDOW_BYTES

    async def publish(self) -> None:
        """Publishes the window. Waits while too many windows are pending."""
        if not self._window:
            return
        window, self._window, self._bytes = self._window, [], 0
        stored = await self._streams.publish_chain(window, last_id=self._last_id, last_seq=self._last_seq)
        self._last_id, self._last_seq = window[-1].id, None
        self._pending.append((asyncio.create_task(stored), self._last_window_seq, len(window)))
        while len(self._pending) >= MAX_PENDING_WINDOWS:
            await self._first()

    async def settle(self) -> None:
        """Waits until all published windows are stored."""
        while self._pending:
            await self._first()

    def abandon(self) -> None:
        """Cancels the wait for pending windows."""
        for task, _, _ in self._pending:
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def _first(self) -> None:
        task, upto, count = self._pending[0]
        await task
        self._pending.popleft()
        self._stored(upto, count)
