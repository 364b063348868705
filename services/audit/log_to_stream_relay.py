"""The relay of one context's events into its JetStream stream: in order, each once, and again after a loss.

The position of the relay is the stream itself: it continues after the last message there, if that message's digest is
the log's. Each message names its predecessor, so the server rejects a gap and a second publisher. A stream that differs
from its log is purged, not deleted, so that the durable consumers of other systems stay; it is filled again from the
oldest event that it may hold.

Events are not decoded: types that this release does not know are relayed like all others.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from services.audit.cloudevent import ENVELOPE, CloudEvents, decode_identity
from services.audit.cloudevent_stream_publisher import StreamPublisher
from services.audit.service_manifest import SUBJECT, stream_of
from services.audit.settings import AuditSettings
from shared.bus.jetstream import StreamConfig, StreamRefused, Streams, StreamState, StreamsUnreachable
from shared.kube.instants import SECOND
from shared.log.database import FAILURES
from shared.log.raw_rows import at_of, first_kept, newest_within, raw_page
from shared.log.reader import LogReader, MissingEvents

log = logging.getLogger(__name__)

PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
FULL = 0.8
"""Below this share of its size limit, a stream has lost no message to the limit."""


class _Wiped(Exception):
    """The stream has lost messages, or has messages of another publisher."""


class StreamRelay:
    """Keeps one stream up to date with one log until `run` is cancelled.

    Attributes:
        relayed: events stored since the start.
        published_seq: seq of the last stored event.
        rebuilds: number of times that the stream was purged and filled again.
    """

    def __init__(
        self,
        context: str,
        settings: AuditSettings,
        reader: LogReader,
        streams: Streams,
        *,
        head: Callable[[], int],
        now_ns: Callable[[], int],
    ) -> None:
        self.relayed = 0
        self.published_seq = 0
        self.rebuilds = 0
        self._context = context
        self._settings = settings
        self._log = reader
        self._streams = streams
        self._head = head
        self._now_ns = now_ns
        self._events = CloudEvents(context, settings.source)
        self._stream = stream_of(context)
        self._config = StreamConfig(
            name=self._stream,
            subjects=(f"{SUBJECT}.{context}.>",),
            description=f"the log of {context}, as CloudEvents",
            max_age=int(settings.stream_days * 86_400 * SECOND),
            max_bytes=settings.stream_mib * 1024 * 1024,
            num_replicas=settings.stream_replicas,
        )
        self._more = asyncio.Event()
        self._oldest_expected = 0  # the oldest seq that the stream should hold, at the last check

    def wake(self) -> None:
        """Wakes the relay after the log has grown."""
        self._more.set()

    async def run(self) -> None:
        """Relays until cancelled. After a failure it starts again from the position of the stream."""
        pause = PAUSE_S
        while True:
            relayed = self.relayed
            try:
                last_seq = await self._find_position()
                await self._publish(last_seq)
            except (_Wiped, StreamsUnreachable, StreamRefused, MissingEvents, *FAILURES) as error:
                pause = PAUSE_S if self.relayed > relayed else min(2 * pause, LONGEST_PAUSE_S)
                log.warning("relay restarts", extra={"context": self._context, "error": str(error) or repr(error)})
            await asyncio.sleep(pause)

    async def _find_position(self) -> int:
        """Sets `published_seq` from the stream. Purges a stream that differs from the log. Returns the stream's last sequence."""
        state = await self._streams.ensure(self._config)
        if state.messages:
            why = await self._mismatch(state)
            if not why:
                return state.last_seq
            log.warning("stream is rebuilt", extra={"stream": self._stream, "reason": why})
            self.rebuilds += 1
            await self._streams.purge(self._stream)
            await asyncio.sleep(
                3 * self._config.duplicate_window / SECOND
            )  # JetStream drops messages whose ids it has seen within this window
            state = await self._streams.ensure(self._config)
            if state.messages:
                raise _Wiped(f"another publisher writes to {SUBJECT}.{self._context}")
        self._oldest_expected = await self._oldest_kept()
        self.published_seq = self._oldest_expected - 1
        return state.last_seq

    async def _mismatch(self, state: StreamState) -> str:
        """Returns how the stream differs from the log; empty when it does not, with `published_seq` set to its last event."""
        last = await self._streams.get(self._stream, state.last_seq)
        if last is None:
            return "its last message was taken out"
        seq, digest = _event_of(last.data)
        found = await self._log.digest_at(self._context, seq) if seq > 0 else None
        if found is None and 0 < seq < await first_kept(self._log.database, self._context):
            self.published_seq = seq  # retention has dropped the events between, so the stream continues with a gap
        elif found is None or found.hex() != digest:
            return f"its last message is {self._context}/{seq} with digest {digest[:16]}, and the log has another"
        self.published_seq = seq
        return await self._mismatch_at_start(state)

    async def _mismatch_at_start(self, state: StreamState) -> str:
        """Returns surplus messages, or a missing start that age and size limits do not explain; empty without either."""
        if state.num_deleted:
            return f"{state.num_deleted} messages were taken out of it"
        first = await self._streams.get(self._stream, state.first_seq)
        if first is None:
            return ""  # it has expired between the two reads
        seq, _ = _event_of(first.data)
        if self.published_seq - seq < state.last_seq - state.first_seq:
            return f"it holds more messages than the log has events from {self._context}/{seq} to {self.published_seq}"
        if seq <= max(self._oldest_expected, 1) or state.bytes >= FULL * self._config.max_bytes:
            return ""
        at = await at_of(self._log.database, self._context, seq - 1)
        if at is None or at < self._since():
            return ""
        self._oldest_expected = await self._oldest_kept()
        return f"it begins at {self._context}/{seq}" if seq > self._oldest_expected else ""

    def _since(self) -> datetime:
        """Returns the instant before which events need not be in the stream."""
        days = timedelta(days=self._settings.stream_days)
        return datetime.fromtimestamp(self._now_ns() / SECOND, UTC) - days + timedelta(minutes=1)

    async def _oldest_kept(self) -> int:
        """Returns the oldest seq that a stream within its limits should hold."""
        budget = int(FULL * self._config.max_bytes)
        database = self._log.database
        return await newest_within(
            database, self._context, self._head(), since=self._since(), most_bytes=budget, beside=ENVELOPE
        )

    async def _publish(self, last_seq: int) -> None:
        """Publishes the following events until a failure."""
        window = StreamPublisher(self._streams, self._stored, self._events, last_seq)
        sent, clock = self.published_seq, asyncio.get_running_loop().time
        checked_at = clock()
        try:
            while True:
                self._more.clear()
                head = self._head()
                if sent >= head or clock() - checked_at > self._settings.poll_interval_s:
                    await window.settle()
                    if clock() - checked_at > self._settings.poll_interval_s:
                        await self._check_stream()
                        checked_at = clock()
                if sent >= head:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._settings.poll_interval_s):
                            await self._more.wait()
                    continue
                for row in (rows := await raw_page(self._log, self._context, sent, head)):
                    window.add(row)
                    if window.full(self._settings.window):
                        await window.publish()
                await window.publish()
                sent = rows[-1].seq if rows else head
        finally:
            window.abandon()

    def _stored(self, upto: int, count: int) -> None:
        self.published_seq = upto
        self.relayed += count

    async def _check_stream(self) -> None:
        """Checks that the stream still has the published messages; the caller has waited for all acknowledgements."""
        state = await self._streams.state(self._stream)
        if state is None:
            raise _Wiped("the stream is gone")
        if state.messages:
            published_seq = self.published_seq
            if why := await self._mismatch(state):
                raise _Wiped(why)
            if published_seq != self.published_seq:
                raise _Wiped(f"another publisher writes to {SUBJECT}.{self._context}")
        elif self.published_seq >= self._oldest_expected and await self._is_recent(self.published_seq):
            raise _Wiped("it was emptied")

    async def _is_recent(self, seq: int) -> bool:
        at = await at_of(self._log.database, self._context, seq)
        return at is not None and at >= self._since()


def _event_of(data: bytes) -> tuple[int, str]:
    """Returns seq and digest of a message; seq -1 for a message of another publisher."""
    try:
        event = decode_identity(data)
    except msgspec.DecodeError:
        return -1, ""
    return event.seq, event.digest
