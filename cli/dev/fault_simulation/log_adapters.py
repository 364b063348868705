"""Adapters of the log: what `shared.log` uses of a database, over `MemoryPostgres`.

The writer and the page query run unchanged over a driver; the small queries of `LogReader` and `ServiceStore` are
answered here, since they are SQL.
"""

import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cli.dev.fault_simulation import memory_log
from cli.dev.fault_simulation.memory_log import MemoryPostgres, Session
from shared.events.log import CarriedForward, WriterStarted
from shared.log.database import Database
from shared.log.position import UNKNOWN, Position
from shared.log.reader import LogReader, Row
from shared.log.service_store import KEPT_SNAPSHOTS, NewerState, ServiceStore, Snapshot, UnreadableByFollowers

_COPY = CarriedForward.type_name()
_STARTED = WriterStarted.type_name()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TABLE = re.compile(r"events_([a-z0-9_]+)")


class UnknownStatement(AssertionError):
    """A statement that this database does not answer: `Driver` needs it."""


class Driver:
    """Driver's connection, as far as the log uses it."""

    def __init__(self, postgres: MemoryPostgres, session: Session) -> None:
        self._postgres = postgres
        self.session = session

    async def execute(self, sql: str, *arguments: Any) -> None:
        """Executes a statement without a result."""
        await self.fetchval(sql, *arguments)

    async def fetchval(self, sql: str, *arguments: Any) -> Any:
        """Returns the one value of a statement."""
        postgres, session = self._postgres, self.session
        if sql == "select 1":
            return await postgres.execute(session, lambda: 1)
        if sql.startswith("select koord_writer("):
            return await postgres.execute(session, lambda: postgres.lock(session, arguments[0]))
        if sql.startswith("select koord_extend("):
            upto = arguments[1] if len(arguments) > 1 else 0
            return await postgres.execute(session, lambda: postgres.extend(arguments[0], upto))
        if sql.startswith("select koord_end_silent_writer("):
            context, idle_s = arguments
            return await postgres.execute(session, lambda: postgres.end_silent_writer(context, idle_s))
        raise UnknownStatement(sql)

    async def fetchrow(self, sql: str, *arguments: Any) -> Any:
        """Returns the one row of a statement."""
        postgres, context = self._postgres, _context(sql)
        if sql.lstrip().startswith("select count(*) filter"):
            return await postgres.execute(self.session, lambda: postgres.page(context, *arguments))
        if sql.startswith("select seq, digest from"):
            head = await postgres.execute(self.session, lambda: postgres.contexts[context].head)
            return {"seq": head.seq, "digest": head.digest} if head.seq else None
        if sql.startswith("select (extract(epoch from clock_timestamp()) * 1000)::bigint as clock"):
            last = await postgres.execute(self.session, lambda: postgres.newest(context, arguments[0], "writer"))
            return {"clock": postgres.clock_us() // 1000, "last": last.data if last else None}
        raise UnknownStatement(sql)

    async def copy_to_table(self, table: str, *, source: memoryview, **_: Any) -> None:
        """Appends rows."""
        postgres, context, data = self._postgres, _context(table), bytes(source)
        await postgres.execute(self.session, lambda: postgres.copy(self.session, context, data))

    async def close(self) -> None:
        """Ends the session."""
        self.terminate()

    def terminate(self) -> None:
        """Closes the socket."""
        self._postgres.end(self.session)


def _context(sql: str) -> str:
    found = _TABLE.search(sql)
    if found is None:
        raise UnknownStatement(sql)
    return re.sub(r"_(\d+)$", r"-\1", found[1])


class MemoryDatabase(Database):
    """The connections of one process."""

    def __init__(self, postgres: MemoryPostgres) -> None:
        self.postgres = postgres
        self._pooled: list[Driver] = []

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Any]:
        """Yields a pooled connection; one whose session has ended is replaced."""
        connection = self._open_connection() or Driver(self.postgres, await self.postgres.connect())
        try:
            yield connection
        finally:
            self._pooled.append(connection)

    async def query(self, statement: Callable[[], Any]) -> Any:
        """Executes a statement on a pooled connection: `reading` without its context manager, since most callbacks of a
        world belong to these.
        """
        connection = self._open_connection() or Driver(self.postgres, await self.postgres.connect())
        try:
            return await self.postgres.execute(connection.session, statement)
        finally:
            self._pooled.append(connection)

    def _open_connection(self) -> Driver | None:
        while self._pooled:
            connection = self._pooled.pop()
            if not connection.session.ended:
                return connection
        return None

    async def dedicated(self) -> Any:
        """Opens a connection of the caller's own."""
        return Driver(self.postgres, await self.postgres.connect())

    async def close(self) -> None:
        """Ends the pooled sessions."""
        for connection in self._pooled:
            self.postgres.end(connection.session)


class MemoryReader(LogReader):
    """Reads of the log."""

    database: MemoryDatabase

    def _of(self, context: str) -> memory_log.Context:
        return self.database.postgres.contexts[context]

    async def contexts(self) -> list[str]:
        """Returns all contexts, in order."""
        return sorted(self.database.postgres.contexts)

    async def head(self, context: str) -> Position:
        """Returns the last event of a context."""
        return await self.database.query(lambda: self._of(context).head)  # type: ignore[no-any-return]

    async def digest_at(self, context: str, seq: int) -> bytes | None:
        """Returns the digest of a row."""
        return await self.database.query(lambda: self._of(context).digest_at(seq))  # type: ignore[no-any-return]

    async def announced_digest(self, context: str, seq: int) -> bytes | None:
        """Returns the digest of a row; None when there is none."""
        return await self.digest_at(context, seq)

    async def epoch(self, context: str) -> int:
        """Returns the epoch of the newest writer that has begun."""
        rows = await self.database.query(lambda: list(self._of(context).rows))
        began = [row.data for row in rows if row.key == "writer" and row.type == _STARTED]
        return msgspec.json.decode(began[-1], type=WriterStarted).epoch if began else 0

    async def oldest(self, context: str) -> Position | None:
        """Returns the position before the first kept event."""
        first = await self.database.query(lambda: self._of(context).first)
        if first == 1 or not self._of(context).rows:
            return Position()
        return Position(first - 1, UNKNOWN) if first % self._of(context).partition_rows == 0 else None

    async def _copies(self, context: str, after: int) -> list[tuple[int, bytes]]:
        rows = await self.database.query(lambda: list(self._of(context).rows))
        return [(row.seq, row.data) for row in rows if row.seq > after and row.type == _COPY]

    async def last_seen(self, context: str) -> dict[str, int]:
        """Returns the positions that the last append of a context rested on."""
        return await self.database.query(lambda: _last_seen(self._of(context)))  # type: ignore[no-any-return]

    async def rows(
        self,
        *,
        context: str | None = None,
        kind: str | None = None,
        key: str | None = None,
        namespace: str | None = None,
        correlation: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: int = 0,
        upto: int | None = None,
        newest: int | None = None,
    ) -> AsyncIterator[Row]:
        """Yields rows of one context; by key where one is given."""
        assert context is not None, "no service reads all contexts"
        assert kind is None, "no service reads rows by type"
        assert namespace is None, "no service reads rows by namespace"
        assert correlation is None, "no service reads rows by correlation"
        assert (since, until) == (None, None), "no service reads rows by time"
        assert newest is None, "no service reads the newest rows"
        for row in await self.database.query(lambda: list(self._of(context).rows)):
            if row.seq > after and (upto is None or row.seq <= upto) and key in (None, row.key):
                at = EPOCH + timedelta(microseconds=row.at_us)
                yield Row(
                    context,
                    row.seq,
                    row.type,
                    row.schema,
                    row.key,
                    at,
                    row.actor,
                    row.cause,
                    row.correlation,
                    row.data,
                    row.digest,
                )


class _Basis(msgspec.Struct):
    seen: dict[str, int] | None = None


def _last_seen(context: memory_log.Context) -> dict[str, int]:
    for row in reversed(context.rows):
        if b'"seen":{' in row.data:
            seen = msgspec.json.decode(row.data, type=_Basis).seen
            if seen is not None:
                return seen
    return {}


class MemoryStore(ServiceStore):
    """The rows of one service next to the log. A snapshot's packed form is the encoded State itself."""

    _database: MemoryDatabase

    def __init__(self, database: MemoryDatabase, service: str) -> None:
        self._database = database
        self._service = service

    def _table(self, name: str) -> dict[Any, Any]:
        found: dict[Any, Any] = self._database.postgres.tables[name].setdefault(self._service, {})
        return found

    async def skips(self) -> frozenset[tuple[str, int]]:
        """Returns the events that this service skips: none."""
        return await self._database.query(lambda: frozenset(self._table("skips")))  # type: ignore[no-any-return]

    async def park(self, context: str, seq: int, error: str) -> None:
        """Records an event that could not be folded."""
        await self._database.query(lambda: self._table("parked").update({(context, seq): error}))

    async def write_snapshot(
        self,
        positions: Mapping[str, Position],
        schema: int,
        code: str,
        packed: bytes,
        digest: bytes,
        keep: Collection[datetime] = (),
    ) -> None:
        """Stores a snapshot and drops those that are no longer needed."""

        def store() -> None:
            table = self._table("snapshots")
            at = EPOCH + timedelta(microseconds=self._database.postgres.clock_us())
            table[at] = (schema, code, Snapshot(at, dict(positions), packed, digest))
            needed = {*sorted(table)[-KEPT_SNAPSHOTS:], *keep}
            for name in [name for name in table if name not in needed]:
                del table[name]

        await self._database.query(store)

    async def snapshots(self, schema: int) -> list[Snapshot]:
        """Returns the stored snapshots of this schema, newest first."""
        found = await self._database.query(lambda: dict(self._table("snapshots")))
        return [found[at][2] for at in sorted(found, reverse=True) if found[at][0] == schema]

    async def snapshot_names(self, schema: int) -> list[datetime]:
        """Returns the names of the kept snapshots, the oldest first."""
        return [snapshot.at for snapshot in reversed(await self.snapshots(schema))]

    async def newest_snapshot(
        self,
        schema: int,
        reader: LogReader,  # noqa: ARG002
        upto: Mapping[str, int] | None = None,
    ) -> Snapshot | None:
        """Returns the newest snapshot whose positions agree with the log."""
        assert upto is None, "no service begins at an older snapshot"
        found = await self._database.query(lambda: dict(self._table("snapshots")))
        for theirs, code, _ in found.values():
            if theirs > schema:
                raise NewerState(self._service, schema, theirs, code)
        contexts = self._database.postgres.contexts
        for at in sorted(found, reverse=True):
            snapshot: Snapshot = found[at][2]
            if found[at][0] == schema and all(
                contexts[name].digest_at(position.seq) == position.digest
                for name, position in snapshot.positions.items()
            ):
                return snapshot
        return None

    async def register(self, positions: Mapping[str, int], reads: Mapping[str, Sequence[str]]) -> None:  # noqa: ARG002
        """Records the types that this service can read."""
        await self._database.query(lambda: self._table("followers").update(dict(reads)))

    async def check_readers(self, context: str, emits: Sequence[str]) -> None:
        """Checks that every registered follower of the context can read the types."""
        followers = await self._database.query(lambda: dict(self._database.postgres.tables["followers"]))
        for service, reads in followers.items():
            declared = set(reads.get(context, ()))
            stems = {name.rpartition(".v")[0] for name in declared}
            unreadable = [name for name in sorted(emits) if name not in declared and name.rpartition(".v")[0] in stems]
            if unreadable and service != self._service:
                raise UnreadableByFollowers(service, context, unreadable)
