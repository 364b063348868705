"""Follows contexts: subscribes and buffers, loads a snapshot, reads the tail, applies the buffered batches; then loses
no event.

A follower tracks the next seq of every context. Batches that arrive in order are applied once Postgres has the digest
of the last of them, one such read per context at a time; so nothing is folded that is not in the log. A repeated batch
is dropped only with the same digest; a gap is read from Postgres after a short grace. Heads are polled at a slow rate,
and each second without a beacon for three seconds, so work continues while the bus is away.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import takewhile

from shared.bus import Bus
from shared.errors import KoordError
from shared.events import RecordedEvent
from shared.fold import State
from shared.log import announcements
from shared.log.announcements import BadAnnouncement, Batch
from shared.log.batch_decoding import decoded
from shared.log.codec import Codec, Unreadable
from shared.log.context_buffer import ContextBuffer
from shared.log.database import FAILURES
from shared.log.follower_failure import FollowerTasks
from shared.log.position import LogRewound, Position
from shared.log.projection import HOOKED_AT_ONCE, BeforeFold, Projection, Reads
from shared.log.reader import LogReader
from shared.log.service_store import ServiceStore

log = logging.getLogger(__name__)

GRACE_S = 0.05
BEACON_LATE_S = 3.0
POLL_INTERVAL_S = 1.0
HEAD_INTERVAL_S = 10.0
"""Seconds between reads of a head while beacons arrive: wrong ones could hide events."""
LOAD_AGAIN_S = 1.0
"""Pause after a load that Postgres did not complete."""
SLICE_S = 0.05
"""Seconds for which buffered batches may hold the event loop at a time."""


class Follower:
    """Keeps a State at the heads of the contexts it follows.

    Attributes:
        reloads: how often the log was rewound and the State replaced by a new one.
        repairs: how often events that the bus had not delivered were read from Postgres.
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
        store: ServiceStore | None = None,
    ) -> None:
        self.reloads = 0
        self.repairs = 0
        self._service = service
        self._reader = reader
        self._store = store or ServiceStore(reader.database, service)
        self._tasks = FollowerTasks(service, self._store)
        self._bus = bus
        self._new_state = new_state
        self._own = own
        self._own_kinds = frozenset(reads[own]) if own else frozenset()
        self._codecs = {name: Codec(kinds) for name, kinds in reads.items()}
        self._contexts = {name: ContextBuffer(name) for name in reads}
        self._projection = Projection(reader, self._codecs, new_state())
        self._folded_before = 0
        self._leading = False
        self._changed = asyncio.Event()
        self._released = asyncio.Event()
        self._released.set()

    @property
    def failed(self) -> "asyncio.Future[None]":
        """Completes with the error that stops this follower: an event that is parked, a hole in the log."""
        return self._tasks.failed

    @property
    def state(self) -> State:
        """The fold; another object after the log was rewound."""
        return self._projection.state

    @property
    def folded(self) -> int:
        """Events folded or skipped since the start."""
        return self._folded_before + self._projection.folded

    @property
    def positions(self) -> dict[str, Position]:
        """Context -> the last event that the State has folded."""
        return dict(self._projection.folded_positions)

    @property
    def sound(self) -> bool:
        """True while the State is the fold of its positions; False once a fold broke off."""
        return self._projection.sound

    @property
    def readable(self) -> dict[str, list[str]]:
        """Context -> stored type names, with versions, that can be folded: old ones through their upcasters."""
        return {name: list(codec.names) for name, codec in self._codecs.items()}

    @property
    def refused(self) -> dict[str, int]:
        """Context -> messages on its subjects that its writer does not send, since the start."""
        return {name: context.refused for name, context in self._contexts.items() if context.refused}

    @property
    def lag(self) -> int:
        """Events that are known to be in the log and are not folded yet."""
        return sum(
            max(0, context.head - self._projection.positions[name].seq) for name, context in self._contexts.items()
        )

    async def start(self) -> None:
        """Subscribes, loads the newest snapshot that agrees with the log, folds the tail, then the batches received
        meanwhile.

        Raises:
            Parked: an event cannot be decoded or folded.
            KoordError: the log has a hole, or a later release has written this service's state.
        """
        if self._bus is not None:
            for name in self._contexts:
                self._contexts[name].epoch = await self._reader.epoch(name)
                await self._bus.subscribe(announcements.batch_subject(name), partial(self._receive_batch, name))
                await self._bus.subscribe(announcements.beacon_subject(name), partial(self._receive_beacon, name))
        try:
            self._projection = await self._loaded()
        except Unreadable as error:
            raise await self._tasks.park(error) from error.error
        self._resume()
        self._tasks.spawn(self._poll(), "follower")

    async def stop(self) -> None:
        """Ends polling and repairs."""
        await self._tasks.stop()

    def take_over(self) -> None:
        """Marks this process as the writer of its own context: a log that is rewound then stops it, because its
        decisions are void.

        Raises:
            KoordError: the State is just being loaded again.
        """
        if not self._tasks.started:
            raise KoordError(f"{self._service} loads its state anew while it takes over; it starts over")
        self._leading = True

    def before_fold(self, hook: BeforeFold | None) -> None:
        """Calls `hook` with each record just before it is applied, with the State as it is then; None ends that.

        For the leader: from then on the State is not replaced. An error in the hook stops this follower.
        """
        if hook is None:
            self._projection.before_fold = None
            return

        def guarded(record: RecordedEvent) -> None:
            try:
                hook(record)
            except Exception as error:  # noqa: BLE001  whatever it is, it is no fault of the event, which is folded
                self._tasks.fail(error)

        self._projection.before_fold = guarded

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps the State at its positions; records received meanwhile are folded at the end.

        For the writer, around a decision that awaits something. The decision then reads, before and after the wait, the
        State at the positions that it records. Holds do not nest, and must end before an append that has to be folded.
        """
        projection = self._projection
        projection.hold()
        self._released.clear()
        try:
            yield
        finally:
            try:
                # Only a fold is a change: the writer waits for one between its decisions, and would else never rest.
                if projection.release():
                    self._changed.set()
            except Unreadable as error:
                self._tasks.stop_at(error)
            self._released.set()

    async def changed(self, timeout_s: float | None = None) -> bool:
        """Waits until an event was folded since the last call; returns False on a timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def wake(self) -> None:
        """Makes `changed` return."""
        self._changed.set()

    async def caught_up(self, targets: Mapping[str, int]) -> None:
        """Returns once every named context that is followed is folded to at least that seq, which must be committed.

        Raises:
            Parked, LogRewound, MissingEvents: the process cannot go on.
        """
        for name in sorted(targets.keys() & self._contexts.keys()):
            try:
                await self._projection.read_to(name, targets[name])
            except Unreadable as error:
                raise await self._tasks.park(error) from error.error
        await self._released.wait()
        self._changed.set()

    async def read_to_head(self, name: str) -> Position:
        """Folds a context to its head in Postgres and returns that position."""
        await self.caught_up({name: (await self._reader.head(name)).seq})
        return self._projection.positions[name]

    async def read_to_heads(self) -> None:
        """Folds every followed context to its head in Postgres: all that an earlier leader of this service may have read
        and acted on.

        Raises:
            Parked, LogRewound, MissingEvents: the process cannot go on.
        """
        for name in self._contexts:
            await self.read_to_head(name)

    def own(self, records: Iterable[RecordedEvent], position: Position, epoch: int) -> None:
        """Folds events that this process has just committed; their announcement will be a repeat.

        Raises:
            Unreadable: the State raised on our own event; the follower fails with the event parked.
        """
        assert self._own is not None
        self._contexts[self._own].own(epoch)
        stands = self._projection.positions[self._own].seq
        if position.seq <= stands:  # a poll has read the commit already
            return
        left = [record for record in records if record.seq > stands and type(record.event) in self._own_kinds]
        try:
            self._take(self._own, left, position)
        except Unreadable as error:
            self._tasks.stop_at(error)
            raise

    # messages of the bus

    def _receive_batch(self, name: str, data: bytes) -> None:
        context = self._contexts[name]
        try:
            batch = announcements.read_batch(name, data)
        except BadAnnouncement as error:
            context.refuse(error)
            return
        context.batch(data, batch)
        self._apply_waiting(name)

    def _receive_beacon(self, name: str, data: bytes) -> None:
        context = self._contexts[name]
        try:
            beacon = announcements.read_beacon(name, data)
        except BadAnnouncement as error:
            context.refuse(error)
            return
        if not context.beacon(beacon) or not self._tasks.started:
            return
        position = self._projection.positions[name]
        renewed = beacon.epoch > context.epoch
        if renewed or (beacon.seq == position.seq and beacon.digest != position.digest):
            self._repair(name, check=True)
        elif beacon.seq > position.seq:
            self._repair(name)

    def _apply_waiting(self, name: str) -> None:
        """Applies the vouched batches; then has the next ones vouched for, or reads missing events before them."""
        context = self._contexts[name]
        context.resumes = False
        if not self._tasks.started or context.reading:
            return  # the end of that read applies them
        ends = time.monotonic() + SLICE_S
        while context.vouched:
            batch, position = context.vouched[0], self._projection.positions[name]
            skip = max(0, position.seq + 1 - batch.first)
            count = len(batch.entries)
            end = count if self._projection.before_fold is None else min(count, skip + HOOKED_AT_ONCE)
            if end == count:
                context.vouched.popleft()
            if skip >= count:
                continue
            if batch.first > position.seq + 1 or _digest_before(batch, skip) != position.digest:
                context.drop()
                self._repair(name, check=True)
                return
            try:
                records = decoded(self._codecs[name], self._projection.skips, batch, skip, end)
                self._take(name, records, Position(batch.first + end - 1, batch.entries[end - 1].digest))
            except Unreadable as error:
                self._tasks.stop_at(error)
                return
            if time.monotonic() > ends and context.vouched:
                context.resumes = True
                asyncio.get_running_loop().call_soon(self._apply_waiting, name)
                return
        if not context.vouching:
            self._consider_waiting(name, context)

    def _consider_waiting(self, name: str, context: ContextBuffer) -> None:
        """Drops repeats; has the batches that follow vouched for, or reads what is missing before them."""
        position = self._projection.positions[name]
        while (batch := context.first) is not None and batch.last <= position.seq:
            context.take()
            if batch.last == position.seq and batch.entries[-1].digest != position.digest:
                self._repair(name, check=True)
                return
        if batch is None:
            return
        skip = position.seq + 1 - batch.first
        if skip < 0:
            self._repair(name)
        elif any(not entry.data for entry in batch.entries):
            self._repair(name, grace_s=0)  # too large for the bus: nothing will come
        elif _digest_before(batch, skip) != position.digest:
            context.take()
            self._repair(name, check=True)
        else:
            context.vouching = True
            self._tasks.spawn(self._vouch(name, context), f"vouch {name}")

    async def _vouch(self, name: str, context: ContextBuffer) -> None:
        """Compares waiting batches with Postgres: one digest there vouches for all events before it."""
        waiting = context.unbroken()
        if not waiting:  # a read from Postgres has taken their place
            context.vouching = False
            return
        try:
            batches = list(takewhile(announcements.is_chained, waiting))
            found = await self._reader.announced_digest(name, batches[-1].last) if batches else None
        except FAILURES as error:
            log.warning("cannot read the log", extra={"context": name, "error": repr(error)})
            context.drop()
            context.at = 0.0  # the poll tries again
            return
        finally:
            context.vouching = False
        if found is not None and found == batches[-1].entries[-1].digest:
            context.vouch(batches)
            self._apply_waiting(name)
        else:
            context.refuse("a batch that is not in the log")
            context.drop()
            self._repair(name, check=True)

    def _take(self, name: str, records: Iterable[RecordedEvent], end: Position) -> None:
        self._projection.take(name, records, end)
        context = self._contexts[name]
        context.head = max(context.head, end.seq)
        self._changed.set()

    # reads from Postgres

    def _repair(self, name: str, *, check: bool = False, grace_s: float | None = None, hint: bool = True) -> None:
        """Reads a context from Postgres after GRACE_S; because of a hint only while such reads find something."""
        context = self._contexts[name]
        if (context.repair is None or context.repair.done()) and (not hint or context.heeds_hints):
            context.repair = self._tasks.spawn(self._mend(name, grace_s, check=check), f"repair {name}")

    async def _mend(self, name: str, grace_s: float | None, *, check: bool) -> None:
        """Reads the missing events, and compares our own row with the log's on the way."""
        context, projection = self._contexts[name], self._projection
        try:
            # Missing events may be on their way; batches that follow are applied meanwhile.
            await asyncio.sleep(GRACE_S if grace_s is None else grace_s)
            context.reading = True
            before = (projection.positions[name], context.epoch)
            if check:
                await projection.agree(name)
            if check or context.claimed > projection.positions[name].seq:
                self.repairs += 1
                # The log has all of them by now, or they belong to a log that was restored to an earlier point.
                context.drop()
                claimed, claimed_epoch = context.claimed, context.claimed_epoch  # true ones may come during the read
                context.epoch = max(context.epoch, await self._reader.epoch(name))
                head = await self._reader.head(name)
                if claimed > head.seq or claimed_epoch > context.epoch:
                    context.refuse(f"seq {claimed} of epoch {claimed_epoch}, which are not in the log")
                context.polled = time.monotonic()
                await projection.read_to(name, head.seq)
                context.read(news=(projection.positions[name], context.epoch) != before)
                self._changed.set()
        except LogRewound as rewound:
            if projection is self._projection:
                await self._rewound(rewound)
            return
        except Unreadable as error:
            self._tasks.stop_at(error)
            return
        except FAILURES as error:
            log.warning("cannot read the log", extra={"context": name, "error": repr(error)})
            context.at = 0.0  # the poll tries again
            return
        finally:
            context.reading = False
        if projection is self._projection:
            context.head = projection.positions[name].seq
            context.claimed, context.claimed_epoch = max(context.head, context.last_seq), context.epoch
            context.repair = None
            self._apply_waiting(name)

    async def _rewound(self, rewound: LogRewound) -> None:
        """Loads the State from the log again; until that is done the old State serves reads."""
        log.warning("log was rewound", extra={"error": str(rewound)})
        if self._leading:
            self._tasks.fail(rewound)
            return
        if not self._tasks.started:
            return  # another context has noticed
        self._tasks.started = False
        self.reloads += 1
        for context in self._contexts.values():
            context.forget()
        while True:
            try:
                projection = await self._loaded()
            except Unreadable as error:
                self._tasks.stop_at(error)
                return
            except LogRewound as again:  # restored once more during the read: its present content can be loaded at once
                log.warning("log was rewound", extra={"error": str(again)})
            except FAILURES as error:
                log.warning("cannot load the state anew", extra={"error": repr(error)})
                await asyncio.sleep(LOAD_AGAIN_S)
            else:
                break
        self._folded_before += self._projection.folded
        self._projection = projection
        self._resume()

    async def _loaded(self) -> Projection:
        projection = Projection(self._reader, self._codecs, self._new_state(), await self._store.skips())
        await projection.load(self._store)
        return projection

    def _resume(self) -> None:
        self._tasks.started = True
        self._changed.set()
        for name, context in self._contexts.items():
            context.repair, context.reading = None, False
            self._apply_waiting(name)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_INTERVAL_S * (0.75 + random.random() / 2))  # noqa: S311  jitter: followers must not poll in step
            await self._poll_heads()

    async def _poll_heads(self) -> None:
        """Reads the heads from Postgres: soon where beacons are late or batches wait, and at a slow rate anyway."""
        for name, context in self._contexts.items():
            now = time.monotonic()
            soon = now - context.at > BEACON_LATE_S or context.first is not None
            if not self._tasks.started or (not soon and now - context.polled < HEAD_INTERVAL_S):
                continue
            try:
                head = await self._reader.head(name)
            except FAILURES as error:
                log.warning("cannot read the head", extra={"context": name, "error": repr(error)})
                continue
            context.polled = now
            if head != self._projection.positions[name]:
                context.head, context.claimed = max(context.head, head.seq), max(context.claimed, head.seq)
                self._repair(name, check=True, grace_s=0 if soon else None, hint=False)


def _digest_before(batch: Batch, skip: int) -> bytes:
    return batch.previous if skip == 0 else batch.entries[skip - 1].digest
