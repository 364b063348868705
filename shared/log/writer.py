"""Appending to a context: one writer, gapless, fenced by a lock that lives on the connection that inserts.

The writer holds the head in memory and inserts `head+1 ... head+n` in one statement on the connection that holds the
advisory lock, so Postgres gives the lock to a successor only after the last insert has ended. After any error on that
connection the head is unknown: `LostHead` ends the process, and it starts over from the log.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from shared.bus import Bus
from shared.errors import KoordError, fault_of
from shared.events import Draft, Event, RecordedEvent
from shared.events.log import CarriedForward, WriterStarted
from shared.log import announcements
from shared.log.announcements import Batch, Beacon
from shared.log.copy_encoding import COLUMNS, RowWriter
from shared.log.database import FAILURES, UNREACHABLE, Database, DatabaseDenied
from shared.log.position import Position
from shared.log.table_names import table_of
from shared.runtime import failpoints
from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

HOLD_INTERVAL_S = 1.0
HOLD_DEADLINE_S = 2.0
SILENT_HOLDER_S = 3
RETRY_INTERVAL_S = 0.5


class LostHead(KoordError):
    """The writer's head is no longer known to be the end of the log: its connection failed, or another writer has taken
    over.
    """

    def __init__(self, context: str, reason: object) -> None:
        what = (
            f"the connection of the writer of {context} to Postgres failed: {fault_of(reason)}"
            if isinstance(reason, UNREACHABLE)
            else f"the writer of {context} cannot write: {str(reason) or repr(reason)}"
        )
        super().__init__(f"{what}; the process ends and starts over from the log")


class LogWriter:
    """The one writer of a context, once `acquire` has returned.

    `committed` is called with every append's records, in order, before any other process can receive them.
    """

    def __init__(
        self,
        database: Database,
        bus: Bus | None,
        context: str,
        actor: str,
        committed: Callable[[list[RecordedEvent], Position, int], None] = lambda _records, _head, _epoch: None,
    ) -> None:
        self.context = context
        self._committed = committed
        self.epoch = 0
        self.head = Position()
        self._planned = Position()  # the head once every append under way is committed
        self._database = database
        self._bus = bus
        self._rows = RowWriter(context, actor)
        self._table = table_of(context)
        self._connection: Any = None
        self._serial = asyncio.Lock()  # one statement at a time on the one connection
        self._room = 0  # the first seq without a partition
        self._half = 0  # the seq from which more are made ahead
        self._keepers: list[asyncio.Task[None]] = []
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def acquire(self) -> Position:
        """Waits for the lock, ending a holder that has gone silent; returns the head as it then is.

        Nothing may be decided on it before `begin` has committed. While Postgres is away it tries again: a replica that
        waits for the lock has no head to lose, and continues to serve reads.

        Raises:
            LostHead: Postgres refuses, for a reason that waiting does not change.
        """
        waited = False
        while True:
            try:
                self.head = self._planned = await self._take_lock()
            except UNREACHABLE as error:
                if not waited:  # logged once an outage
                    log.warning("cannot wait for the lock", extra={"context": self.context, "error": repr(error)})
                waited = True
                await self._disconnect()
                await asyncio.sleep(RETRY_INTERVAL_S)
            except FAILURES as error:
                raise LostHead(self.context, error) from error
            else:
                return self.head

    async def begin(
        self,
        release: str,
        emits: Sequence[type[Event]],
        *,
        now_ns: int,
        seen: Mapping[str, int],
        libraries: Mapping[str, str] = MappingProxyType({}),
    ) -> RecordedEvent:
        """Appends `WriterStarted`; from its commit on this replica decides, responds and carries out effects.

        Args:
            release, libraries: as in WriterStarted.
        """
        try:
            found = await self._connection.fetchrow(
                f"select (extract(epoch from clock_timestamp()) * 1000)::bigint as clock, "  # noqa: S608
                f"(select data from {self._table} where key = 'writer' and type = any($1) order by seq desc limit 1) as last",
                [WriterStarted.type_name(), CarriedForward.type_name()],
            )
        except FAILURES as error:
            raise LostHead(self.context, error) from error
        self.epoch = max(_epoch_of(found["last"]) + 1, found["clock"])
        started = WriterStarted(
            epoch=self.epoch,
            release=release,
            emits=tuple(sorted(kind.type_name() for kind in emits)),
            libraries=dict(libraries),
        )
        records = await self.append([Draft(started)], now_ns=now_ns, seen=seen)
        self._keepers = [asyncio.create_task(keeper()) for keeper in (self._hold, self._beacons, self._partitions)]
        return records[0]

    async def append(
        self, drafts: Sequence[Draft], *, now_ns: int, seen: Mapping[str, int] | None = None, config: str = ""
    ) -> list[RecordedEvent]:
        """Commits the events in one transaction, then announces them.

        Appends that are begun while one is under way follow it; their rows are made meanwhile.

        Args:
            now_ns: the instant of the decision; becomes `at`, in whole microseconds.
            seen: positions the decision rests on; with `now_ns` and `config` it is recorded in the first event.

        Raises:
            LostHead: the commit is in doubt or refused; the process must end.
        """
        if not drafts:
            return []
        self._check_not_lost()
        rows = self._rows.rows(self._planned, self.epoch, drafts, now_ns, seen, config)
        batch = rows.batch
        head = self._planned = Position(batch.last, batch.entries[-1].digest)
        try:
            async with self._serial:  # in the order of the calls, as the seqs were given
                self._check_not_lost()
                if batch.last >= self._room:
                    await self._extend(batch.last)
                failpoints.hit("log.before-commit")
                await self._connection.copy_to_table(
                    self._table, source=memoryview(rows.copy), columns=COLUMNS, format="binary"
                )
                failpoints.hit("log.after-commit-before-announce")
                self.head = head
                self._committed(rows.records, head, self.epoch)
                await self._announce(batch)
        except FAILURES as error:
            raise self._lose(error) from error
        except BaseException as error:
            self._lose(error)  # the rows may be committed or not, and rows planned after them cannot follow
            raise
        return rows.records

    async def append_from(
        self, build: Callable[[], Sequence[Draft]], *, now_ns: int, seen: Mapping[str, int] | None = None
    ) -> list[RecordedEvent]:
        """Appends events that are made of the State as it is at their place in the log.

        `build` is called when nothing is under way, and no other append comes between the State that it reads and its
        events. Otherwise as `append`.
        """
        while self._planned != self.head:
            self._check_not_lost()
            async with self._serial:  # the turn of those before
                pass
        return await self.append(build(), now_ns=now_ns, seen=seen)

    async def check_lock(self) -> None:
        """Makes a round trip on the lock's connection: all that was appended before it was appended under a held lock.

        Raises:
            LostHead: the lock is gone, or Postgres did not respond in time.
        """
        async with self._serial:
            try:
                async with asyncio.timeout(HOLD_DEADLINE_S):
                    await self._connection.fetchval("select 1")
            except FAILURES as error:
                raise self._lose(error) from error

    async def close(self) -> None:
        """Releases the lock."""
        await cancel_and_wait(*self._keepers)
        await self._disconnect()

    async def _take_lock(self) -> Position:
        self._connection = await self._database.dedicated()
        watch = asyncio.create_task(self._end_silent_holder())
        try:
            await self._connection.execute("select koord_writer($1)", self.context)
            found = await self._connection.fetchrow(f"select seq, digest from {self._table} order by seq desc limit 1")  # noqa: S608
            head = Position(found["seq"], found["digest"]) if found else Position()
            self._made(head.seq, await self._connection.fetchval("select koord_extend($1, 0)", self.context))
        finally:
            watch.cancel()
        return head

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            async with asyncio.timeout(HOLD_DEADLINE_S):
                await connection.close()
        except FAILURES:  # a server that hangs is not waited for: the lock ends with the socket
            connection.terminate()

    async def _announce(self, batch: Batch) -> None:
        if self._bus is not None:
            for part in announcements.split(
                msgspec.structs.replace(batch, entries=announcements.shorten(batch.entries))
            ):
                await self._bus.publish(announcements.batch_subject(self.context), announcements.encode(part))

    async def _extend(self, upto: int) -> None:
        """Makes the partitions that an append needs and two more; needed only when `_partitions` was too slow."""
        self._made(upto, await self._connection.fetchval("select koord_extend($1, $2)", self.context, upto))

    def _made(self, upto: int, room: int) -> None:
        self._room = max(self._room, room)
        self._half = (upto + self._room) // 2

    async def _hold(self) -> None:
        """Runs a statement each second, so that a lost lock is noticed.

        An append is such a statement, so the deadline is for the statement, not for its turn on the connection.
        """
        while True:
            await asyncio.sleep(HOLD_INTERVAL_S)
            try:
                await self.check_lock()
            except LostHead:
                return

    async def _partitions(self) -> None:
        """Makes partitions before they are needed, on another connection: a DDL statement may wait, the writer must
        not.
        """
        while True:
            await asyncio.sleep(HOLD_INTERVAL_S)
            if self.head.seq < self._half:
                continue
            try:
                async with self._database.reading() as connection:
                    upto = self.head.seq
                    self._made(upto, await connection.fetchval("select koord_extend($1, $2)", self.context, upto))
            except (DatabaseDenied, *FAILURES) as error:
                log.warning("cannot make partitions ahead", extra={"context": self.context, "error": repr(error)})

    async def _beacons(self) -> None:
        while True:
            if self._bus is not None:
                beacon = Beacon(self.context, self.epoch, self.head.seq, self.head.digest)
                await self._bus.publish(announcements.beacon_subject(self.context), announcements.encode(beacon))
            await asyncio.sleep(1)

    async def _end_silent_holder(self) -> None:
        """While waiting, ends a holder that has been idle for longer than any living one ever is."""
        while True:
            await asyncio.sleep(1)
            try:
                async with self._database.reading() as connection:
                    query = "select koord_end_silent_writer($1, make_interval(secs => $2))"
                    ended = await connection.fetchval(query, self.context, SILENT_HOLDER_S)
                if ended:
                    log.warning(
                        "ended a silent writer", extra={"context": self.context, "stale_after_s": SILENT_HOLDER_S}
                    )
            except (DatabaseDenied, *FAILURES) as error:
                log.warning("cannot watch the lock's holder", extra={"context": self.context, "error": str(error)})

    def _check_not_lost(self) -> None:
        """Raises the error of an earlier append: rows planned after a failed append must not leave a gap before
        them.
        """
        if self.lost.done():
            self.lost.result()

    def _lose(self, reason: BaseException) -> LostHead:
        error = LostHead(self.context, reason)
        if not self.lost.done():
            self.lost.set_exception(error)
            self.lost.exception()  # seen: the runner awaits it, and an error raised directly needs no second report
        return error


def _epoch_of(data: bytes | None) -> int:
    """Returns the epoch of the last WriterStarted, or of the copy that was carried forward; 0 for none."""
    if data is None:
        return 0
    started = msgspec.json.decode(data, type=WriterStarted | CarriedForward)
    if isinstance(started, CarriedForward):
        started = msgspec.json.decode(started.event, type=WriterStarted)
    return started.epoch
