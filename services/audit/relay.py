"""One context's events into its JetStream stream: in order, each once, and again when the stream was wiped or altered.

Where the relay stands is in the stream: it goes on behind the last message there, if the log agrees with that message's digest.
Each message names the one before it, so the server refuses a hole and a second publisher's guess. A stream that does not
fit its log is emptied, not removed, so the consumers of outsiders stay; it is filled again from the oldest event that it may hold.

Nothing here decodes an event: types that this release does not know pass like all others.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from services.audit.cloudevent import ENVELOPE, CloudEvents, said
from services.audit.manifest import SUBJECT, stream_of
from services.audit.publish_window import Chain
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
"""A stream that has less than this share of its bytes lost nothing to its bound."""


class _Wiped(Exception):
    """The stream no longer holds what it was given."""


class Relay:
    """Keeps one stream at the head of one log, for as long as `run` is not cancelled.

    Attributes:
        relayed: events that are stored, since the start.
        stands: seq of the last event that is stored.
        rebuilds: how often the stream was emptied and filled again.
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
        self.stands = 0
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
        self._filled_from = 0  # the oldest seq that the stream could be asked for, when that was last looked at

    def wake(self) -> None:
        """The log has grown."""
        self._more.set()

    async def run(self) -> None:
        """Relay until cancelled. Whatever fails is begun again from what the stream holds by then."""
        pause = PAUSE_S
        while True:
            relayed = self.relayed
            try:
                last_seq = await self._find_place()
                await self._go_on(last_seq)
            except (_Wiped, StreamsUnreachable, StreamRefused, MissingEvents, *FAILURES) as error:
                pause = PAUSE_S if self.relayed > relayed else min(2 * pause, LONGEST_PAUSE_S)
                log.warning("relay begins again", extra={"context": self._context, "error": str(error) or repr(error)})
            await asyncio.sleep(pause)

    # where it stands

    async def _find_place(self) -> int:
        """Set `stands`, from the stream; returns the seq of its last message. Empties a stream that does not fit the log."""
        state = await self._streams.ensure(self._config)
        if state.messages:
            why = await self._misfit(state)
            if not why:
                return state.last_seq
            log.warning("stream is built anew", extra={"stream": self._stream, "reason": why})
            self.rebuilds += 1
            await self._streams.purge(self._stream)
            await asyncio.sleep(3 * self._config.duplicate_window / SECOND)  # until it takes the same ids again
            state = await self._streams.ensure(self._config)
            if state.messages:
                raise _Wiped(f"somebody else publishes on {SUBJECT}.{self._context}")
        self._filled_from = await self._oldest_wanted()
        self.stands = self._filled_from - 1
        return state.last_seq

    async def _misfit(self, state: StreamState) -> str:
        """Why the stream cannot be gone on with; empty when it can, and `stands` is its last event then."""
        last = await self._streams.get(self._stream, state.last_seq)
        if last is None:
            return "its last message was taken out"
        seq, digest = _event_of(last.data)
        found = await self._log.digest_at(self._context, seq) if seq > 0 else None
        if found is None and 0 < seq < await first_kept(self._log.database, self._context):
            self.stands = seq  # retention was faster; what is between is in no log any more
        elif found is None or found.hex() != digest:
            return f"its last message is {self._context}/{seq} with digest {digest[:16]}, and the log has another"
        self.stands = seq
        return await self._lacks(state)

    async def _lacks(self, state: StreamState) -> str:
        """What is too much in the stream, or missing at its beginning without its age or bytes as the reason; empty for nothing."""
        if state.num_deleted:
            return f"{state.num_deleted} messages were taken out of it"
        first = await self._streams.get(self._stream, state.first_seq)
        if first is None:
            return ""  # it has aged out between the two looks
        seq, _ = _event_of(first.data)
        if self.stands - seq < state.last_seq - state.first_seq:
            return f"it holds more messages than the log has events from {self._context}/{seq} to {self.stands}"
        if seq <= max(self._filled_from, 1) or state.bytes >= FULL * self._config.max_bytes:
            return ""
        at = await at_of(self._log.database, self._context, seq - 1)
        if at is None or at < self._since():
            return ""
        self._filled_from = await self._oldest_wanted()
        return f"it begins at {self._context}/{seq}" if seq > self._filled_from else ""

    def _since(self) -> datetime:
        """Events that are older need not be in the stream."""
        days = timedelta(days=self._settings.stream_days)
        return datetime.fromtimestamp(self._now_ns() / SECOND, UTC) - days + timedelta(minutes=1)

    async def _oldest_wanted(self) -> int:
        """The oldest seq that a stream within its bounds should hold."""
        budget = int(FULL * self._config.max_bytes)
        database = self._log.database
        return await newest_within(
            database, self._context, self._head(), since=self._since(), most_bytes=budget, beside=ENVELOPE
        )

    # what it does

    async def _go_on(self, last_seq: int) -> None:
        """Publish what follows, until something fails."""
        chain = Chain(self._streams, self._stored, self._events, last_seq)
        given, clock = self.stands, asyncio.get_running_loop().time
        looked_at = clock()
        try:
            while True:
                self._more.clear()
                head = self._head()
                if given >= head or clock() - looked_at > self._settings.poll_interval_s:
                    await chain.settle()
                    if clock() - looked_at > self._settings.poll_interval_s:
                        await self._look()
                        looked_at = clock()
                if given >= head:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._settings.poll_interval_s):
                            await self._more.wait()
                    continue
                for row in (rows := await raw_page(self._log, self._context, given, head)):
                    chain.add(row)
                    if chain.full(self._settings.window):
                        await chain.give()
                await chain.give()
                given = rows[-1].seq if rows else head
        finally:
            chain.abandon()

    def _stored(self, upto: int, count: int) -> None:
        self.stands = upto
        self.relayed += count

    async def _look(self) -> None:
        """See whether the stream still is what it was filled with; all that was given away is stored."""
        state = await self._streams.state(self._stream)
        if state is None:
            raise _Wiped("the stream is gone")
        if state.messages:
            stands = self.stands
            if why := await self._misfit(state):
                raise _Wiped(why)
            if stands != self.stands:
                raise _Wiped(f"somebody else publishes on {SUBJECT}.{self._context}")
        elif self.stands >= self._filled_from and await self._young(self.stands):
            raise _Wiped("it was emptied")

    async def _young(self, seq: int) -> bool:
        at = await at_of(self._log.database, self._context, seq)
        return at is not None and at >= self._since()


def _event_of(data: bytes) -> tuple[int, str]:
    """Seq and digest that a message says; seq -1 for one that is not ours."""
    try:
        event = said(data)
    except msgspec.DecodeError:
        return -1, ""
    return event.seq, event.digest
