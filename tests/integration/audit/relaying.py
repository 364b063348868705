"""A relay of `cluster` as in the audit service, and the content of its stream."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from services.audit.log_to_stream_relay import StreamRelay
from services.audit.service_manifest import stream_of
from services.audit.settings import AuditSettings
from shared.bus import Bus
from shared.bus.jetstream import Stored, StreamRefused, Streams, StreamsUnreachable
from shared.events import Draft
from shared.events.cluster import PodBound
from shared.log.database import Database
from shared.log.reader import LogReader
from shared.runtime.task_cancellation import cancel_and_wait
from tests.support.log_system import Writer
from tests.support.waiting import until

STREAM = stream_of("cluster")


class Relaying:
    """Appends events to `cluster` and relays them.

    Attributes:
        upto: seq of the last event that was appended.
    """

    def __init__(self, database: Database, bus: Bus, writer: Writer, settings: AuditSettings) -> None:
        self.streams = Streams(bus)
        self.settings = settings
        self.reader = LogReader(database)
        self.upto = 1
        self._writer = writer
        self._task: asyncio.Task[None] | None = None
        self.relay = self._new_relay()

    def _new_relay(self, head: Callable[[], int] | None = None) -> StreamRelay:
        found = head or (lambda: self.upto)
        return StreamRelay("cluster", self.settings, self.reader, self.streams, head=found, now_ns=time.time_ns)

    async def append(self, count: int, *, text: str = "x", size: int = 100) -> None:
        """Appends events, and wakes the relay."""
        for start in range(0, count, size):
            events = [PodBound(pod=f"a.b/{text}-{n}", pod_uid="u", node="n1") for n in range(min(size, count - start))]
            records = await self._writer.log.append([Draft(event) for event in events], now_ns=time.time_ns(), seen={})
            self.upto = records[-1].seq
            self.relay.wake()

    def start(self) -> None:
        """Starts a new relay in the background, as a new process does."""
        self.relay = self._new_relay()
        self._task = asyncio.create_task(self.relay.run())

    async def stop(self) -> None:
        """Cancels the relay."""
        if self._task is not None:
            await cancel_and_wait(self._task)
            self._task = None

    async def wait_until_published(self, seq: int) -> None:
        """Waits until the relay has published the log up to a seq."""
        await until(lambda: self.relay.published_seq >= seq)

    async def wait_for_head(self) -> None:
        """Waits until the stream ends with the log's last event."""
        await until(self._is_at_head)

    async def _is_at_head(self) -> bool:
        try:
            last = await self.streams.last(STREAM)
        except (StreamsUnreachable, StreamRefused):
            return False
        return last is not None and last.headers.get("Nats-Msg-Id") == f"cluster/{self.upto}"

    async def holds(self) -> list[Stored]:
        """Returns all messages of the stream."""
        state = await self.streams.state(STREAM)
        assert state is not None
        found = [await self.streams.get(STREAM, seq) for seq in range(state.first_seq, state.last_seq + 1)]
        return [message for message in found if message is not None]

    async def seqs(self) -> list[int]:
        """Returns the seqs of the events in the stream, by the ids of the messages."""
        return [seq_of(message) for message in await self.holds()]


def seq_of(message: Stored) -> int:
    """Returns the seq of the event in a message; 0 for a message of another publisher."""
    return int(message.headers.get("Nats-Msg-Id", "0").rpartition("/")[2])


def counted(upto: int, first: int = 1) -> list[Any]:
    """Returns the seqs from `first` to `upto`."""
    return list(range(first, upto + 1))
