"""Following contexts: subscribe and buffer, load a snapshot, read the tail, apply what was buffered; then lose nothing.

A follower knows the next seq of every context. What the bus brings in order is applied at once; a repeat is dropped only
with the same digest; a gap is read from Postgres after a short grace, one read per context at a time. Without a beacon for
three seconds it polls the head, so work goes on while the bus is away.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import asyncpg
from sqlalchemy.exc import SQLAlchemyError

from shared.bus import Bus
from shared.errors import KoordError
from shared.events import Cause, Event, Recorded
from shared.fold import State
from shared.log import announce
from shared.log.announce import Batch
from shared.log.positions import LogRewound, Position
from shared.log.reader import PAGE, Codec, LogReader, MissingEvents, Page, Undecodable
from shared.log.registry import Registry, Snapshot

log = logging.getLogger(__name__)

GRACE_S = 0.05
BEACON_LATE_S = 3.0
POLL_EVERY_S = 1.0
BUFFERED = 4_096
SLICE_S = 0.02
"""How long the fold may hold the event loop at a time."""

Reads = Mapping[str, Sequence[type[Event]]]


class Parked(KoordError):
    """An event that cannot be decoded or folded stops the follower until someone looks at it."""

    def __init__(self, service: str, context: str, seq: int, error: BaseException) -> None:
        super().__init__(
            f"{service} cannot fold {context}/{seq}: {error!r}. It is parked and the service stands still; fix the code, or "
            f"pass over the event with: koord events skip {service} {context}/{seq} --reason '...'"
        )


class _Context:
    """One followed context: where it stands, and what waits to be applied."""

    def __init__(self, kinds: Sequence[type[Event]]) -> None:
        self.codec = Codec(kinds)
        self.position = Position()
        self.epoch = 0
        self.head = 0  # the highest seq heard of
        self.waiting: deque[Batch] = deque(maxlen=BUFFERED)
        self.heard_at = time.monotonic()
        self.repair: asyncio.Task[None] | None = None


class Follower:
    """Keeps a State at the heads of the contexts it follows.

    Attributes:
        state: the fold; replaced by a new one when the log was rewound (`reloads` counts these).
        folded: events applied or passed since the start.
    """

    def __init__(
        self,
        service: str,
        reader: LogReader,
        bus: Bus | None,
        reads: Reads,
        new_state: Callable[[], State],
        *,
        own: str | None = None,
    ) -> None:
        self.state = new_state()
        self.folded = 0
        self.reloads = 0
        self._service = service
        self._reader = reader
        self._registry = Registry(reader.database, service)
        self._bus = bus
        self._reads = dict(reads)
        self._new_state = new_state
        self._own = own
        self._own_kinds = frozenset(reads[own]) if own else frozenset()
        self._contexts = {name: _Context(kinds) for name, kinds in reads.items()}
        self._skips: frozenset[tuple[str, int]] = frozenset()
        self._started = False
        self._changed = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def positions(self) -> dict[str, Position]:
        """Where every context stands."""
        return {name: context.position for name, context in self._contexts.items()}

    @property
    def lag(self) -> int:
        """How many events have been heard of and not been folded yet."""
        return sum(max(0, context.head - context.position.seq) for context in self._contexts.values())

    async def start(self) -> None:
        """Subscribe, load the newest snapshot that the log agrees with, fold the tail, then what was heard meanwhile."""
        self._skips = await self._registry.skips()
        if self._bus is not None:
            for name in self._contexts:
                await self._bus.hear(announce.batch_subject(name), self._hear_batch)
                await self._bus.hear(announce.beacon_subject(name), self._hear_beacon)
        await self._load()
        self._started = True
        for name in self._contexts:
            self._apply_waiting(name)
        self._poller = asyncio.create_task(self._poll(), name="follower")

    async def begin_at(self, snapshot: Snapshot) -> None:
        """Stand on a given snapshot, without the bus: for rebuilds and replays, which then call `caught_up`."""
        self._skips = await self._registry.skips()
        self._stand_on(snapshot)

    async def stop(self) -> None:
        """End polling and repairs."""
        tasks = [context.repair for context in self._contexts.values() if context.repair] + [self._poller]
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)

    async def changed(self, timeout_s: float | None = None) -> bool:
        """Wait until something was folded since the last call; False when the time ran out first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def wake(self) -> None:
        """Let `changed` return."""
        self._changed.set()

    async def caught_up(self, targets: Mapping[str, int]) -> None:
        """Return once every named context is folded to at least that seq."""
        while any(self._contexts[name].position.seq < seq for name, seq in targets.items() if name in self._contexts):
            for name, seq in targets.items():
                if name in self._contexts and self._contexts[name].position.seq < seq:
                    await self._read_to(name, seq)

    async def read_to_head(self, name: str) -> Position:
        """Fold a context to its head in Postgres and return where that is."""
        head = await self._reader.head(name)
        await self._read_to(name, head.seq)
        return self._contexts[name].position

    def own(self, records: Iterable[Recorded], position: Position, epoch: int) -> None:
        """Fold what this process has just committed itself; the announcement of it will be a repeat."""
        assert self._own is not None
        context = self._contexts[self._own]
        context.epoch = max(context.epoch, epoch)
        context.heard_at = time.monotonic()
        kinds = self._own_kinds
        left = [record for record in records if record.seq > context.position.seq and type(record.event) in kinds]
        if position.seq > context.position.seq:  # a poll may have read the commit already
            self._fold(self._own, left, position)

    # what the bus brings

    def _hear_batch(self, data: bytes) -> None:
        batch = announce.decode_batch(data)
        context = self._contexts[batch.context]
        if batch.epoch < context.epoch:
            return  # an older writer's last words
        context.epoch = batch.epoch
        context.heard_at = time.monotonic()
        context.head = max(context.head, batch.last)
        context.waiting.append(batch)
        if self._started:
            self._apply_waiting(batch.context)

    def _hear_beacon(self, data: bytes) -> None:
        beacon = announce.decode_beacon(data)
        context = self._contexts[beacon.context]
        if beacon.epoch < context.epoch:
            return
        context.epoch = beacon.epoch
        context.heard_at = time.monotonic()
        context.head = max(context.head, beacon.seq)
        if not self._started:
            return
        position = context.position
        if (beacon.seq == position.seq and beacon.digest != position.digest) or beacon.seq < position.seq:
            # Our own append may be folded before a beacon that was sent just before it arrives; the log decides.
            self._repair(beacon.context, check=True)
        elif beacon.seq > position.seq:
            self._repair(beacon.context)

    def _apply_waiting(self, name: str) -> None:
        """Apply the buffered batches that follow; start a read for what is missing before them."""
        context = self._contexts[name]
        if context.repair is not None and not context.repair.done():
            return  # the read applies them when it ends
        while context.waiting:
            batch = context.waiting[0]
            position = context.position
            if batch.last <= position.seq:
                if batch.last == position.seq and batch.entries[-1].digest != position.digest:
                    self._repair(name, check=True)
                context.waiting.popleft()
                continue
            skip = position.seq + 1 - batch.first
            if skip < 0 or any(not entry.data for entry in batch.entries):
                self._repair(name)
                return
            previous = batch.previous if skip == 0 else batch.entries[skip - 1].digest
            if previous != position.digest:
                context.waiting.popleft()
                self._repair(name, check=True)
                return
            context.waiting.popleft()
            self._apply_batch(name, batch, skip)

    def _apply_batch(self, name: str, batch: Batch, skip: int) -> None:
        one = self._contexts[name].codec.one
        records: list[Recorded] = []
        at_ns = batch.at_us * 1000
        for seq, entry in enumerate(batch.entries[skip:], batch.first + skip):
            try:
                event = one(entry.type, entry.data)
            except Exception as error:  # noqa: BLE001  whatever a decoder or upcaster raises parks the event
                self._fold(
                    name,
                    records,
                    Position(seq - 1, batch.entries[seq - 1 - batch.first].digest) if seq > batch.first else None,
                )
                self._park(name, seq, error)
                return
            if event is not None:
                records.append(Recorded(name, seq, event, at_ns, Cause.parse(entry.cause) if entry.cause else None))
        self._fold(name, records, Position(batch.last, batch.entries[-1].digest))

    # the fold

    def _fold(self, name: str, records: Iterable[Recorded], end: Position | None) -> None:
        apply = self.state.apply
        skips = self._skips
        for record in records:
            if skips and (name, record.seq) in skips:
                continue
            try:
                apply(record)
            except Exception as error:  # noqa: BLE001  a fold must not refuse: whatever it raises parks the event
                self._park(name, record.seq, error)
                return
        if end is None:
            return
        context = self._contexts[name]
        self.folded += end.seq - context.position.seq
        context.position = end
        context.head = max(context.head, end.seq)
        self.state.positions[name] = end.seq
        self._changed.set()

    def _park(self, name: str, seq: int, error: BaseException) -> None:
        parked = Parked(self._service, name, seq, error)
        parked.__cause__ = error
        if not self.failed.done():
            self.failed.set_exception(parked)
            self.failed.exception()  # seen: whoever awaits `failed` reports it
            self._started = False
            asyncio.get_running_loop().create_task(self._registry.park(name, seq, repr(error)))

    # reads from Postgres

    def _repair(self, name: str, *, check: bool = False) -> None:
        context = self._contexts[name]
        if context.repair is None or context.repair.done():
            context.repair = asyncio.create_task(self._mend(name, check=check), name=f"repair {name}")

    async def _mend(self, name: str, *, check: bool) -> None:
        """Read what is missing; compare our own row with the log's on the way."""
        context = self._contexts[name]
        try:
            await asyncio.sleep(GRACE_S)
            if check or context.head > context.position.seq:
                await self._agree(name)
                await self._read_to(name, (await self._reader.head(name)).seq)
            context.repair = None  # a batch heard from here on is applied, or asks for another read
            if self._started:
                self._apply_waiting(name)
        except LogRewound as rewound:
            context.repair = None
            log.warning("log was rewound", extra={"context": name, "error": str(rewound)})
            await self._reload()
        except (Undecodable, MissingEvents) as error:
            self._fail(error)
        except (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            log.warning("cannot read the log", extra={"context": name, "error": repr(error)})
            context.heard_at = 0.0  # the poll tries again

    async def _agree(self, name: str) -> None:
        position = self._contexts[name].position
        found = await self._reader.digest_at(name, position.seq)
        if position != self._contexts[name].position:
            return  # more was folded meanwhile: the chain held there
        if found != position.digest:
            raise LogRewound(name, position, found)

    async def _read_to(self, name: str, upto: int) -> None:
        """Fold pages up to a committed seq, fetching the next page while this one is folded."""
        context = self._contexts[name]
        after = context.position.seq
        ahead: asyncio.Task[Page] | None = None
        try:
            while after < upto:
                end = min(upto, after + PAGE)
                page = await self._reader.page(name, after, end, context.codec) if ahead is None else await ahead
                ahead = (
                    asyncio.create_task(self._reader.page(name, end, min(upto, end + PAGE), context.codec))
                    if end < upto
                    else None
                )
                started = time.monotonic()
                if context.position.seq == after:
                    self._fold(name, page.records, page.end)
                elif context.position.seq < page.end.seq:  # part of it came over the bus meanwhile
                    left = [record for record in page.records if record.seq > context.position.seq]
                    self._fold(name, left, page.end)
                if self.failed.done():
                    return
                after = end
                if time.monotonic() - started > SLICE_S:
                    await asyncio.sleep(0)
        except Undecodable as error:
            self._park(name, error.seq, error)
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)

    async def _load(self) -> None:
        """Begin at the newest snapshot that the log agrees with, or at the beginning; read to the heads."""
        snapshot = await self._registry.newest_snapshot(self.state.SCHEMA, self._reader)
        if snapshot is not None:
            self._stand_on(snapshot)
        for name in self._contexts:
            await self.read_to_head(name)

    def _stand_on(self, snapshot: Snapshot) -> None:
        self.state.restore(snapshot.data)
        for name, position in snapshot.positions.items():
            if name in self._contexts:
                self._contexts[name].position = position
                self.state.positions[name] = position.seq

    async def _reload(self) -> None:
        """Drop the state and fold anew from what the log says now."""
        self._started = False
        self.reloads += 1
        self.state = self._new_state()
        for context in self._contexts.values():
            context.position, context.head, context.epoch = Position(), 0, 0
            context.waiting.clear()
        self._skips = await self._registry.skips()
        await self._load()
        self._started = True
        self._changed.set()

    async def _poll(self) -> None:
        """Ask Postgres for the heads whose beacons stay away."""
        while True:
            await asyncio.sleep(POLL_EVERY_S * (0.75 + random.random() / 2))  # noqa: S311  jitter: followers must not ask in step
            if not self._started:
                continue
            for name, context in self._contexts.items():
                if time.monotonic() - context.heard_at <= BEACON_LATE_S:
                    continue
                try:
                    head = await self._reader.head(name)
                except (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
                    log.warning("cannot read the head", extra={"context": name, "error": repr(error)})
                    continue
                position = context.position
                context.head = max(position.seq, head.seq)
                if head.seq != position.seq or head.digest != position.digest:
                    self._repair(name, check=True)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()
            self._started = False
