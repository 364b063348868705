"""Stored rows of the log, a page at a time, for readers that pass them on without decoding.

A page arrives as one array a column: a row of its own costs the driver more than all further processing (see `reader`).
"""

from datetime import datetime
from typing import NamedTuple

from shared.log.database import Database
from shared.log.reader import PAGE, LogReader, MissingEvents, numbers
from shared.log.table_names import table_of

_POSTGRES_EPOCH_US = 946_684_800_000_000  # 2000-01-01, where timestamptz_send counts from
_DIGEST = 32

_PAGE_SQL = """
select string_agg(int8send(seq), ''::bytea), array_agg(type), array_agg(schema), array_agg(key),
       string_agg(timestamptz_send(at), ''::bytea), array_agg(actor), array_agg(cause), array_agg(correlation),
       array_agg(data), string_agg(digest, ''::bytea)
from (select * from {table} where context = '{context}' and seq > $1 and seq <= $2 order by context, seq) page
"""


# Data, three times the key, and what else an event takes, summed from the newest back.
_WITHIN_SQL = """
select min(seq) filter (where size <= $4 and at >= $5), max(size)
from (select seq, at, sum(octet_length(data) + 3 * octet_length(key) + $6::integer) over (order by seq desc) as size
      from {table} where context = $1 and seq > $2 and seq <= $3) page
"""


class RawRow(NamedTuple):
    """An event as stored; `data` is the exact JSON text."""

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


async def raw_page(log: LogReader, context: str, after: int, upto: int) -> list[RawRow]:
    """Returns the rows with `after < seq <= upto`, at most a page of them; `upto` must be committed.

    Rows that retention has dropped at the beginning are left out: the first row then is the oldest kept.

    Raises:
        MissingEvents: the range has a hole.
    """
    oldest = 0
    end = min(upto, after + PAGE)
    rows = await _rows(log.database, context, after, end)
    if not rows or rows[0].seq != after + 1:
        oldest = await first_kept(log.database, context)
        if oldest <= after + 1:
            raise MissingEvents(context, after, end, len(rows))
        if not rows:
            after = oldest - 1
            end = min(upto, after + PAGE)
            rows = await _rows(log.database, context, after, end)
    if rows and (rows[-1].seq != end or rows[-1].seq - rows[0].seq != len(rows) - 1):
        raise MissingEvents(context, rows[0].seq - 1, end, len(rows))
    return rows


async def _rows(database: Database, context: str, after: int, upto: int) -> list[RawRow]:
    sql = _PAGE_SQL.format(table=table_of(context), context=context)
    async with database.reading() as connection:
        found = await connection.fetchrow(sql, after, upto)
    seqs, kinds, schemas, keys, ats, actors, causes, correlations, data, digests = found
    if seqs is None:
        return []
    at_us = [at + _POSTGRES_EPOCH_US for at in numbers(ats)]
    chain = [digests[start : start + _DIGEST] for start in range(0, len(digests), _DIGEST)]
    columns = (numbers(seqs), kinds, schemas, keys, at_us, actors, causes, correlations, data, chain)
    return [RawRow(*row) for row in zip(*columns, strict=True)]


async def first_kept(database: Database, context: str) -> int:
    """Returns the oldest kept seq; 0 in an empty log."""
    sql = f"select min(seq) from {table_of(context)} where context = $1"  # noqa: S608
    async with database.reading() as connection:
        return await connection.fetchval(sql, context) or 0


async def at_of(database: Database, context: str, seq: int) -> datetime | None:
    """Returns the instant of an event's append; None when it is not there."""
    sql = f"select at from {table_of(context)} where context = $1 and seq = $2"  # noqa: S608
    async with database.reading() as connection:
        found = await connection.fetchval(sql, context, seq)
    return found if isinstance(found, datetime) else None


async def first_since(database: Database, context: str, at: datetime) -> int:
    """Returns the first event appended at an instant or later; 0 when there is none. Reads every row of the log."""
    sql = f"select min(seq) from {table_of(context)} where context = $1 and at >= $2"  # noqa: S608
    async with database.reading() as connection:
        return await connection.fetchval(sql, context, at) or 0


async def newest_within(
    database: Database, context: str, head: int, *, since: datetime, most_bytes: int, beside: int
) -> int:
    """Returns the oldest seq from which on the log has at most `most_bytes`, and begins at `since` or later.

    Args:
        beside: bytes that an event takes besides its data and three times its key.
    """
    sql = _WITHIN_SQL.format(table=table_of(context))
    oldest = max(await first_kept(database, context), 1)
    start, left = head, most_bytes
    while start >= oldest:
        low = max(start - PAGE, oldest - 1)
        async with database.reading() as connection:
            first, size = await connection.fetchrow(sql, context, low, start, left, since, beside)
        if first is None:
            break
        start = first - 1
        if start > low:
            break
        left -= size
    return start + 1
