"""The log's database in memory: contexts, locks of writers, snapshots, and the sessions of its clients.

It answers the statements of `shared.log.writer` and the page query of `shared.log.reader` as Postgres does: COPY's
bytes are parsed, seqs must be gapless, a lock ends with its session. A statement takes a drawn time before and after it
is executed, so a client may lose the answer of a statement that was committed.
"""

import asyncio
import random
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from cli.dev.fault_simulation.virtual_loop import PROCESS, Process
from shared.log.hash_chain import U32
from shared.log.position import Position
from shared.log.reader import SLICE

BEGINS_US = 1_767_225_600_000_000
"""Instant at which every world begins: 2026-01-01, microseconds since the epoch."""

KEEPALIVE_S = 3.0
"""Seconds after which the server drops a session whose client it does not reach."""

_POSTGRES_EPOCH_US = 946_684_800_000_000
_NULL = 2**32 - 1


class Row(NamedTuple):
    """An event as stored."""

    seq: int
    type: str
    schema: int
    key: str
    at_us: int
    actor: str
    cause: str | None
    correlation: str | None
    data: bytes
    digest: bytes


class Session:
    """A client's connection to the server.

    Attributes:
        ended: the server has dropped it, or its client has gone; statements fail.
        used_s: when its last statement ended.
        busy: a statement is being executed, or waits for a lock.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.ended = False
        self.used_s = 0.0
        self.busy = False


class Context:
    """One context: consecutive rows, and the lock of its writer."""

    def __init__(self, name: str, partition_rows: int) -> None:
        self.name = name
        self.partition_rows = partition_rows
        self.rows: list[Row] = []
        self.first = 1  # seq of rows[0]
        self.room = 0  # the first seq without a partition
        self.full_us: dict[int, int] = {}  # first seq of a partition -> when the server found it full
        self.holder: Session | None = None
        self.waiting: deque[tuple[Session, asyncio.Future[None]]] = deque()

    @property
    def head(self) -> Position:
        """The last row."""
        return Position(self.rows[-1].seq, self.rows[-1].digest) if self.rows else Position()

    def row(self, seq: int) -> Row | None:
        """Returns the row of a seq; None when there is none."""
        index = seq - self.first
        return self.rows[index] if 0 <= index < len(self.rows) else None

    def digest_at(self, seq: int) -> bytes | None:
        """Returns the digest of a row; 32 zero bytes at seq 0."""
        if seq == 0:
            return Position().digest
        row = self.row(seq)
        return row.digest if row else None

    def drop_before(self, seq: int) -> None:
        """Drops the rows before a seq, as a partition is dropped."""
        del self.rows[: seq - self.first]
        self.first = seq


class MemoryPostgres:
    """The server.

    Attributes:
        appended: called with a context's name and the rows of each commit.
        dropped: called with a context's name, the first seq that is kept, and the world's time at which the last event
            of the partition that is dropped was committed.
        up: False while it restarts; no statement is executed then.
        cut: processes that cannot reach it.
        slow_s: added to the time of each statement.
        clock_us: its wall clock.
    """

    def __init__(self, seed: int, partitions: Mapping[str, int]) -> None:
        self.contexts = {name: Context(name, rows) for name, rows in partitions.items()}
        self.tables: dict[str, dict[Any, Any]] = {"snapshots": {}, "parked": {}, "skips": {}, "followers": {}}
        self.appended: Callable[[str, list[Row]], None] = lambda _context, _rows: None
        self.dropped: Callable[[str, int, float], None] = lambda _context, _first, _committed_s: None
        self.up = True
        self.cut: dict[Process, None] = {}
        self.slow_s = 0.0
        self.skew_us = 0
        self._random = random.Random(seed)  # noqa: S311
        self._process = Process("postgres")
        self._sessions: dict[Session, None] = {}
        self._committed_s: dict[tuple[str, int], float] = {}

    def clock_us(self) -> int:
        """Reads the server's wall clock."""
        return BEGINS_US + int(asyncio.get_running_loop().time() * 1e6) + self.skew_us

    # -- sessions

    async def connect(self) -> Session:
        """Opens a session for the calling process."""
        session = Session(PROCESS.get())
        self._sessions[session] = None
        await self.execute(session, lambda: None)
        return session

    def end(self, session: Session) -> None:
        """Drops a session; its lock is free, and a statement that it waits for fails."""
        session.ended = True
        self._sessions.pop(session, None)
        for context in self.contexts.values():
            for waits in [waits for waits in context.waiting if waits[0] is session]:
                context.waiting.remove(waits)
                if not waits[1].done():
                    waits[1].set_exception(ConnectionResetError("the session has ended"))
            if context.holder is session:
                context.holder = None
                self._grant(context)

    def restart(self) -> None:
        """Drops all sessions."""
        for session in list(self._sessions):
            self.end(session)

    def end_sessions_of(self, process: Process) -> None:
        """Drops the sessions of a process that was killed, or that was unreachable for too long."""
        for session in [session for session in self._sessions if session.process is process]:
            self.end(session)

    def end_silent_writer(self, context: str, idle_s: float) -> int:
        """Drops the session that holds a context's lock, if its client has been silent for that long."""
        holder = self.contexts[context].holder
        silent = holder is not None and not holder.busy
        if holder is None or not silent or asyncio.get_running_loop().time() - holder.used_s < idle_s:
            return 0
        self.end(holder)
        return 1

    # -- statements

    def execute(self, session: Session, statement: Callable[[], Any]) -> asyncio.Future[Any]:
        """Executes a statement after the time of the way there, and returns its result after that of the way back.

        The future has an OSError when the session has ended, or the server is not reached.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()
        loop.call_later(self._travel_s(), self._arrive, session, statement, result, context=self._process.context)
        return result

    def _arrive(self, session: Session, statement: Callable[[], Any], result: asyncio.Future[Any]) -> None:
        if session.process in self.cut:
            self._time_out(session, result)
            return
        if session.ended or not self.up:
            _fail(result, ConnectionResetError("the session has ended"))
            return
        session.busy = True
        try:
            found = statement()
        except OSError as error:
            session.busy = False
            _fail(result, error)
            return
        if isinstance(found, asyncio.Future):
            found.add_done_callback(partial(self._granted, session, result), context=self._process.context)
        else:
            self._answer(session, found, result)

    def _granted(self, session: Session, result: asyncio.Future[Any], lock: asyncio.Future[Any]) -> None:
        if (error := lock.exception()) is not None:
            session.busy = False
            _fail(result, error)
        else:
            self._answer(session, None, result)

    def _answer(self, session: Session, found: Any, result: asyncio.Future[Any]) -> None:
        loop = asyncio.get_running_loop()
        session.busy = False
        session.used_s = loop.time()
        loop.call_later(self._travel_s(), self._deliver, session, found, result, context=session.process.context)

    def _deliver(self, session: Session, found: Any, result: asyncio.Future[Any]) -> None:
        if session.process in self.cut:
            self._time_out(session, result)
        elif session.ended:
            _fail(result, ConnectionResetError("the session has ended"))
        elif not result.done():
            result.set_result(found)

    def _time_out(self, session: Session, result: asyncio.Future[Any]) -> None:
        """Leaves the client of a packet that did not arrive waiting for the keepalive."""
        error = TimeoutError("the server is not reached")
        asyncio.get_running_loop().call_later(KEEPALIVE_S, _fail, result, error, context=session.process.context)

    def _travel_s(self) -> float:
        """Draws the time of one direction."""
        return 0.0001 + self._random.random() * 0.002 + self.slow_s

    # -- the log

    def lock(self, session: Session, name: str) -> asyncio.Future[None] | None:
        """Takes the lock of a context's writer, or waits for it."""
        context = self.contexts[name]
        if context.holder is None:
            context.holder = session
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        context.waiting.append((session, future))
        return future

    def _grant(self, context: Context) -> None:
        while context.waiting and context.holder is None:
            session, future = context.waiting.popleft()
            if not future.done() and session.process.alive:
                context.holder = session
                future.set_result(None)

    def extend(self, name: str, upto: int) -> int:
        """Makes partitions; returns the first seq without one."""
        context = self.contexts[name]
        rows = context.partition_rows
        context.room = max(context.room, (max(context.head.seq, upto) // rows + 3) * rows)
        return context.room

    def copy(self, session: Session, name: str, data: bytes) -> None:
        """Appends the rows of a COPY.

        Raises:
            OSError: the rows do not continue the log (a unique violation), or have no partition.
        """
        context = self.contexts[name]
        rows = parse_copy(data)
        assert context.holder is session, f"{name}: a row is written without the lock"
        if rows[0].seq != context.head.seq + 1 or [row.seq for row in rows] != [*range(rows[0].seq, rows[-1].seq + 1)]:
            raise OSError(f"{name}: {rows[0].seq} does not follow {context.head.seq}")
        if rows[-1].seq >= context.room:
            raise OSError(f"{name}: no partition for {rows[-1].seq}")
        context.rows += rows
        now_s = asyncio.get_running_loop().time()
        self._committed_s.update(dict.fromkeys(((name, row.seq) for row in rows), now_s))
        self.appended(name, rows)

    def page(self, name: str, after: int, upto: int, declared: list[str], skipped: list[int]) -> tuple[Any, ...]:
        """Answers the page query of the reader."""
        context = self.contexts[name]
        rows = context.rows[max(0, after + 1 - context.first) : max(0, upto + 1 - context.first)]
        kinds = frozenset(declared)
        found = [row for row in rows if row.type in kinds and row.seq not in skipped]
        ends = [row.digest for row in rows if row.seq == upto or (row.seq - after) % SLICE == 0]
        return (
            len(rows),
            _packed(row.seq for row in found),
            _packed(len(row.data) for row in found),
            _packed(row.at_us - _POSTGRES_EPOCH_US for row in found),
            [row.cause for row in found],
            b",".join(row.data for row in found),
            context.digest_at(after) if after else None,
            ends,
            upto,
        )

    def newest(self, name: str, kinds: list[str], key: str) -> Row | None:
        """Returns the newest row of some types and a key."""
        rows = reversed(self.contexts[name].rows)
        return next((row for row in rows if row.key == key and row.type in kinds), None)

    def drop_before(self, name: str, seq: int) -> None:
        """Drops the oldest partition."""
        context = self.contexts[name]
        last = context.row(seq - 1)
        if last is not None:
            self.dropped(name, seq, self._committed_s[name, last.seq])
            context.drop_before(seq)


def _fail(result: asyncio.Future[Any], error: BaseException) -> None:
    if not result.done():
        result.set_exception(error)


def _packed(values: Any) -> bytes:
    packed = array("q", values)
    packed.byteswap()
    return packed.tobytes()


def parse_copy(data: bytes) -> list[Row]:
    """Parses rows in COPY's binary form."""
    rows, at, unpack = [], 19, U32.unpack_from
    while data[at : at + 2] != b"\xff\xff":
        at += 2
        fields: list[bytes | None] = []
        for _ in range(11):
            (size,) = unpack(data, at)
            at += 4
            if size == _NULL:
                fields.append(None)
                continue
            fields.append(data[at : at + size])
            at += size
        rows.append(_row(fields))
    return rows


def _row(fields: list[Any]) -> Row:
    _, seq, kind, schema, key, at, actor, cause, correlation, data, digest = fields
    return Row(
        int.from_bytes(seq),
        kind.decode(),
        int.from_bytes(schema),
        key.decode(),
        int.from_bytes(at, signed=True) + _POSTGRES_EPOCH_US,
        actor.decode(),
        cause.decode() if cause is not None else None,
        correlation.decode() if correlation is not None else None,
        data,
        digest,
    )
