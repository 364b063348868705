"""Reads the log from Postgres: heads, pages of events for folds, rows for people.

A page is a range of seq and one statement, so a read never holds a snapshot for longer than a page. The server returns
a page as a few arrays and one JSON text of all its events: a row of its own would cost more than its fold.
"""

import asyncio
import sys
from array import array
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from shared.errors import KoordError
from shared.events import Cause, Event, RecordedEvent
from shared.events.log import CarriedForward, WriterStarted
from shared.log.codec import Codec, Unreadable
from shared.log.database import Database
from shared.log.position import UNKNOWN, LogRewound, Position
from shared.log.table_names import table_of

PAGE = 5_000
"""Seqs of one statement, at most."""

PAGE_BYTES = 16 * 2**20
"""Bytes of data after which a page ends: 5,000 objects of a mebibyte would be more than Postgres can return."""

SLICE = 64
"""Seqs that are decoded and folded at a time.

The objects of a slice stay in the processor's cache until the fold has read them: with 5,000 at a time a fold took 1.5
times as long.
"""

_CLOCK_STEP = timedelta(minutes=1)
"""How far the clock of a context's writers may step back, from one event to a later one."""

_UNTIL_SENT = 2  # turns of the event loop after which a query is on its way

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The last seq of a page. A range of one slice is not measured: most reads are of a few events.
_LAST_SQL = """
least($2::bigint, case when $2 - $1 > {slice} and (
    select sum(octet_length(data)) from {table} where context = '{context}' and seq > $1 and seq <= $2
  ) >= {bytes} then (
    select min(seq) from (select seq, sum(octet_length(data)) over (order by seq) as bytes from {table}
                          where context = '{context}' and seq > $1 and seq <= $2) sizes where bytes >= {bytes}
  ) end)"""

# The digests at the low end and at each slice's end come with the page: the first is compared with the follower's own.
# One statement sees one state of the log, so nothing can be put back between the comparison and the rows. Numbers come
# as their bytes, eight a row.
_PAGE_SQL = """
select count(*) filter (where seq > $1), string_agg(int8send(seq), ''::bytea) filter (where declared),
       string_agg(int8send(octet_length(data)), ''::bytea) filter (where declared),
       string_agg(timestamptz_send(at), ''::bytea) filter (where declared), array_agg(cause) filter (where declared),
       string_agg(data, ','::bytea) filter (where declared),
       (array_agg(digest) filter (where seq = $1))[1],
       array_agg(digest) filter (where seq = last or seq > $1 and (seq - $1) % {slice} = 0), max(last)
from (with page_end as materialized (select {last} as last)
      select seq, at, cause, data, digest, seq > $1 and type = any($3) and seq <> all($4) as declared,
             (select last from page_end) as last from {table}
      where context = '{context}' and seq >= $1 and seq <= (select last from page_end) order by context, seq) page
"""
_POSTGRES_EPOCH_NS = 946_684_800_000_000_000  # 2000-01-01, where timestamptz_send counts microseconds from


class Row(NamedTuple):
    """An event as stored, for people and for verification: `data` is the exact JSON text."""

    context: str
    seq: int
    type: str
    schema: int
    key: str
    at: datetime
    actor: str
    cause: str | None
    correlation: str | None
    data: bytes
    digest: bytes


COLUMNS = ", ".join(Row._fields)
"""The columns of a row, in its order."""


class _Basis(msgspec.Struct):
    """The positions that an append rests on, from its first event."""

    seen: dict[str, int] | None = None


class MissingEvents(KoordError):
    """A range of a context has a hole: events were deleted, or retention dropped their partition."""

    def __init__(self, context: str, after: int, upto: int, count: int) -> None:
        super().__init__(
            f"{context}: {count} of the {upto - after} events from {after + 1} to {upto} are there; "
            f"koord audit verify --log {context} names the first that is missing"
        )


def numbers(packed: bytes) -> Sequence[int]:
    """Decodes integers from their big-endian bytes, eight each."""
    numbers = array("q", packed)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def at_us(at: datetime) -> int:
    """Returns microseconds since the epoch."""
    delta = at - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


class Page(NamedTuple):
    """Consecutive events of a context: those of declared types, and the page's end."""

    records: list[RecordedEvent]
    end: Position


class LogReader:
    """Reads of the log, on pooled connections."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def contexts(self) -> list[str]:
        """Returns all declared contexts, in order."""
        async with self.database.reading() as connection:
            return [name for (name,) in await connection.fetch("select context from contexts order by context")]

    async def head(self, context: str) -> Position:
        """Returns the last event of a context; seq 0 for an empty one."""
        sql = f"select seq, digest from {table_of(context)} where context = $1 order by seq desc limit 1"  # noqa: S608
        async with self.database.reading() as connection:
            row = await connection.fetchrow(sql, context)
        return Position(*row) if row else Position()

    async def epoch(self, context: str) -> int:
        """Returns the epoch of the newest writer that has begun; 0 before the first."""
        sql = (
            f"select data from {table_of(context)} "  # noqa: S608
            "where context = $1 and key = 'writer' and type = $2 order by seq desc limit 1"
        )
        async with self.database.reading() as connection:
            data = await connection.fetchval(sql, context, WriterStarted.type_name())
        return msgspec.json.decode(data, type=WriterStarted).epoch if data else 0

    async def announced_digest(self, context: str, seq: int) -> bytes | None:
        """Returns the digest of a row, None when there is none: `digest_at` for each batch that arrives."""
        sql = f"select digest from {table_of(context)} where context = $1 and seq = $2"  # noqa: S608
        digest: bytes | None = await self.database.kept.value(sql, context, seq)
        return digest

    async def digest_at(self, context: str, seq: int) -> bytes | None:
        """Returns the digest of a row, None when there is none; 32 zero bytes at seq 0."""
        if seq == 0:
            return Position().digest
        sql = f"select digest from {table_of(context)} where context = $1 and seq = $2"  # noqa: S608
        async with self.database.reading() as connection:
            digest: bytes | None = await connection.fetchval(sql, context, seq)
        return digest

    async def oldest(self, context: str) -> Position | None:
        """Returns the position before the first kept event, where an empty fold begins. None when that is not a
        partition's first.

        Retention drops whole partitions; any other hole at the beginning has another cause. The digest there is not
        known.
        """
        sql = f"select seq from {table_of(context)} where context = $1 order by seq limit 1"  # noqa: S608
        async with self.database.reading() as connection:
            first = await connection.fetchval(sql, context)
            rows = await connection.fetchval("select partition_rows from contexts where context = $1", context)
        if first is None or first == 1:
            return Position()
        return Position(first - 1, UNKNOWN) if rows and first % rows == 0 else None

    async def carried_forward(
        self, context: str, upto: int, codec: Codec, skipped: Collection[int] = ()
    ) -> list[RecordedEvent]:
        """Returns the declared events up to `upto` that were carried forward when their partitions were dropped, in the
        order in which they were recorded.

        A fold that begins behind `upto` begins with them. An event that was carried forward more than once comes once.
        """
        found: dict[tuple[int, str], RecordedEvent] = {}  # opening balances have seqs that other events had
        after = 0
        while page := await self._copies(context, after):
            for seq, data in page:
                if seq in skipped:
                    continue
                try:
                    record = codec.original(msgspec.json.decode(data, type=CarriedForward))
                except Exception as error:  # any exception of a decoder or an upcaster means that it cannot be read
                    raise Unreadable(context, seq, error) from error
                if record is not None and record.seq <= upto:
                    found[record.seq, record.event.type_name()] = record
            after = page[-1][0]
        return [found[place] for place in sorted(found)]

    async def _copies(self, context: str, after: int) -> Sequence[tuple[int, bytes]]:
        """Returns a page of the CarriedForward rows behind a seq, by the index over the rare types."""
        # As a constant, so that the index is seen to fit.
        kind = f"type = '{CarriedForward.type_name()}'"
        sql = f"select seq, data from {table_of(context)} where {kind} and seq > $1 order by seq limit {PAGE}"  # noqa: S608
        async with self.database.reading() as connection:
            return [(seq, data) for seq, data in await connection.fetch(sql, after)]

    async def last_seen(self, context: str) -> dict[str, int]:
        """Returns the positions that the last append of a context rested on: context -> seq. Empty when nothing was
        appended yet.
        """
        # An object may have a member of that name too.
        sql = (
            f"select data from {table_of(context)} "  # noqa: S608
            """where context = $1 and convert_from(data, 'UTF8') like '%"seen":{%' order by seq desc limit 50"""
        )
        async with self.database.reading() as connection:
            for (data,) in await connection.fetch(sql, context):
                basis = msgspec.json.decode(data, type=_Basis).seen
                if basis is not None:
                    return basis
        return {}

    async def pages(
        self, context: str, after: Position, upto: int, codec: Codec, skipped: Collection[int] = ()
    ) -> AsyncGenerator[Page, None]:
        """Yields the declared events with `after.seq < seq <= upto`, a slice at a time; `upto` must be committed, such
        as a head or the end of a batch.

        While a page of slices is folded, Postgres works on the next page.

        Args:
            skipped: seqs to skip, readable or not.

        Raises:
            LogRewound: the log has another digest at `after`.
            Unreadable: a declared type that cannot be read; names the first such event.
            MissingEvents: the range has a hole.
        """
        table = table_of(context)
        sql = _PAGE_SQL.format(table=table, context=context, slice=SLICE, last=_last_sql(context))
        async with self.database.reading() as connection:

            def fetch(start: int) -> asyncio.Future[Any]:
                end = min(upto, start + PAGE)
                inside = [seq for seq in skipped if start < seq <= end]
                query: asyncio.Future[Any] = asyncio.ensure_future(
                    connection.fetchrow(sql, start, end, codec.names, inside)
                )
                return query

            ahead = fetch(after.seq) if after.seq < upto else None
            try:
                while ahead is not None:
                    *found, last = await ahead
                    end = min(upto, after.seq + PAGE) if last is None else last
                    ahead = fetch(end) if end < upto else None
                    for _ in range(_UNTIL_SENT):
                        await asyncio.sleep(0)
                    async for page in self._slices(context, after, end, codec, found):
                        yield page
                        after = page.end
            finally:
                if ahead is not None:
                    ahead.cancel()
                    await asyncio.gather(ahead, return_exceptions=True)

    async def _slices(
        self, context: str, after: Position, upto: int, codec: Codec, found: Sequence[Any]
    ) -> AsyncGenerator[Page, None]:
        """Decodes a fetched page in slices of at most `SLICE` seqs; each is folded before the next is decoded."""
        count, packed_seqs, packed_sizes, packed_ats, causes, data, before, digests = found
        if after.seq and after.digest not in (UNKNOWN, before):
            raise LogRewound(context, after, before)
        if count != upto - after.seq:
            raise MissingEvents(context, after.seq, upto, count)
        seqs, sizes, ats = numbers(packed_seqs or b""), numbers(packed_sizes or b""), numbers(packed_ats or b"")
        texts = memoryview(data or b"")
        parse, epoch = Cause.parse, _POSTGRES_EPOCH_NS
        first = offset = 0
        for end, digest in zip((*range(after.seq + SLICE, upto, SLICE), upto), digests, strict=True):
            last = bisect_right(seqs, end, first)
            if first == last:
                yield Page([], Position(end, digest))
                continue
            until = offset + sum(sizes[first:last]) + last - first  # a comma behind each text
            try:
                decoded = codec.page(texts[offset : until - 1])
            except Exception as error:  # any exception of a decoder or an upcaster means that an event cannot be read
                raise await self._unreadable(context, seqs[first:last], codec) from error
            columns = (seqs[first:last], decoded, ats[first:last], causes[first:last])
            records = [
                RecordedEvent(context, seq, event, at * 1000 + epoch, parse(cause) if cause else None)
                for seq, event, at, cause in zip(*columns, strict=True)
                if event is not None
            ]
            yield Page(records, Position(end, digest))
            first, offset = last, until

    async def _unreadable(self, context: str, seqs: Sequence[int], codec: Codec) -> Unreadable:
        declared = frozenset(seqs)
        async for row in self.rows(context=context, after=seqs[0] - 1, upto=seqs[-1]):
            if row.seq in declared:
                try:
                    codec.one(row.type, row.data)
                except Exception as error:  # noqa: BLE001
                    return Unreadable(context, row.seq, error)
        return Unreadable(context, seqs[0], ValueError("the page does not decode, its events do"))

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
        """Yields events as stored, in order of context and seq, a page at a time.

        Args:
            kind: the end of a type name, such as `PodPlaced` or `PodPlaced.v1`.
            namespace: only events whose key is `namespace/name` of this namespace.
            newest: only the newest so many, in the same order.
        """
        names = [context] if context else await self.contexts()
        for name in names:
            query = _Rows(name)
            if key is not None:
                query.where("key = {}", key)
            if namespace is not None:
                query.where("starts_with(key, {})", f"{namespace}/")
            if correlation is not None:
                query.where("correlation = {}", correlation)
            begin = after
            if since is not None:
                query.where("at >= {}", since)
                begin = max(after, await self._before(name, since - _CLOCK_STEP))
            end = upto
            if until is not None:
                query.where("at <= {}", until)
                last = await self._before(name, until + _CLOCK_STEP)
                end = last if upto is None else min(upto, last)
            if kind is not None:
                stem = kind.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
                query.where("(type like {} or type like {})", f"%{stem}", f"%.{stem}.v%")
            if newest is not None:
                pages = self._newest(query, begin, end, newest)
            elif key is not None:
                pages = self._newest(query, begin, end, None)
            else:
                pages = self._pages(query, begin, end)
            async for row in pages:
                yield row

    async def rows_at(self, context: str, seqs: Collection[int]) -> list[Row]:
        """Returns the events at these seqs, in their order; those that the log no longer has are left out."""
        if not seqs:
            return []
        sql = f"select {COLUMNS} from {table_of(context)} where context = $1 and seq = any($2) order by seq"  # noqa: S608
        async with self.database.reading() as connection:
            return [Row(*row) for row in await connection.fetch(sql, context, sorted(seqs))]

    async def appended_at(self, context: str, seqs: Collection[int]) -> dict[int, datetime]:
        """Returns seq -> the instant of the append; seqs that the log no longer has are left out."""
        if not seqs:
            return {}
        sql = f"select seq, at from {table_of(context)} where context = $1 and seq = any($2)"  # noqa: S608
        async with self.database.reading() as connection:
            return dict(await connection.fetch(sql, context, sorted(seqs)))

    async def last_until(self, context: str, at: datetime) -> int:
        """Returns the last seq before the first event that was appended later than an instant; 0 when none is."""
        begin = await self._before(context, at - _CLOCK_STEP)
        sql = f"select seq from {table_of(context)} where context = $1 and seq > $2 and at > $3 order by seq limit 1"  # noqa: S608
        async with self.database.reading() as connection:
            later: int | None = await connection.fetchval(sql, context, begin, at)
        return (await self.head(context)).seq if later is None else later - 1

    async def _before(self, context: str, at: datetime) -> int:
        """Returns a seq before all events that were appended at least `_CLOCK_STEP` after an instant, by bisection."""
        sql = f"select seq, at from {table_of(context)} where context = $1 and seq > $2 order by seq limit 1"  # noqa: S608
        low, high = 0, (await self.head(context)).seq
        async with self.database.reading() as connection:
            while low < high:
                middle = (low + high) // 2
                seq, appended = await connection.fetchrow(sql, context, middle)
                if appended < at:
                    low = seq
                else:
                    high = middle
        return low

    async def _newest(self, query: "_Rows", after: int, upto: int | None, count: int | None) -> AsyncIterator[Row]:
        """Reads in one statement: few rows, or those of one key, which have an index."""
        query.where("seq > {}", after)
        if upto is not None:
            query.where("seq <= {}", upto)
        async with self.database.reading() as connection:
            found = await connection.fetch(f"{query.sql} order by seq desc limit {count or 'all'}", *query.values)
        for row in reversed(found):
            yield Row(*row)

    async def _pages(self, query: "_Rows", after: int, upto: int | None) -> AsyncIterator[Row]:
        """Reads by ranges of seq: a LIMIT makes the server read everything behind `after` while it has no statistics."""
        async with self.database.reading() as connection:
            sql = f"select min(seq) from {table_of(query.context)} where context = $1"  # noqa: S608
            oldest = await connection.fetchval(sql, query.context)
        head = (await self.head(query.context)).seq
        start, end = max(after, (oldest or 1) - 1), head if upto is None else min(upto, head)
        places = len(query.values)
        sql = f"{query.sql} and seq > ${places + 1} and seq <= ${places + 2} order by seq"
        while start < end:
            async with self.database.reading() as connection:
                last = await connection.fetchval(f"select {_last_sql(query.context)}", start, min(start + PAGE, end))
                found = await connection.fetch(sql, *query.values, start, last)
            for row in found:
                yield Row(*row)
            start = last


def _last_sql(context: str) -> str:
    """Returns the expression of the last seq of a page that begins behind $1 and ends at $2 or before."""
    return _LAST_SQL.format(table=table_of(context), context=context, slice=SLICE, bytes=PAGE_BYTES)


class _Rows:
    """A selection of a context's rows; conditions are added."""

    def __init__(self, context: str) -> None:
        self.context = context
        self.sql = f"select {COLUMNS} from {table_of(context)} where context = $1"  # noqa: S608
        self.values: list[object] = [context]

    def where(self, condition: str, *values: object) -> None:
        """Adds a condition; each `{}` of it is a value."""
        first = len(self.values) + 1
        self.values += values
        self.sql += " and " + condition.format(*(f"${first + number}" for number in range(len(values))))


def recorded(row: Row, event: Event) -> RecordedEvent:
    """Converts a stored row into the record that a fold gets."""
    return RecordedEvent(
        row.context, row.seq, event, at_us(row.at) * 1000, Cause.parse(row.cause) if row.cause else None
    )


def read_record(row: Row, codec: Codec) -> RecordedEvent | None:
    """Returns the recorded event of a row, or the one of which the row is a copy; None when its type is not declared."""
    if row.type == CarriedForward.type_name():
        return codec.original(msgspec.json.decode(row.data, type=CarriedForward))
    event = codec.one(row.type, row.data)
    return None if event is None else recorded(row, event)
