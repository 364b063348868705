"""Stored rows of the log, a page at a time, for readers that pass them on without decoding.

A page arrives as one array a column: a row of its own costs the driver more than all further processing (see `reader`).
"""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func, select

from shared.log.database import Database, driver
from shared.log.reader import PAGE, LogReader, MissingEvents, numbers
from shared.log.tables import log_of, table_of

_POSTGRES_EPOCH_US = 946_684_800_000_000  # 2000-01-01, where timestamptz_send counts from
_DIGEST = 32

_PAGE_SQL = """
select string_agg(int8send(seq), ''::bytea), array_agg(type), array_agg(schema), array_agg(key),
       string_agg(timestamptz_send(at), ''::bytea), array_agg(actor), array_agg(cause), array_agg(correlation),
       array_agg(data), string_agg(digest, ''::bytea)
from (select * from {table} where context = '{context}' and seq > $1 and seq <= $2 order by context, seq) page
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
        found = await (await driver(connection)).fetchrow(sql, after, upto)
    seqs, kinds, schemas, keys, ats, actors, causes, correlations, data, digests = found
    if seqs is None:
        return []
    at_us = [at + _POSTGRES_EPOCH_US for at in numbers(ats)]
    chain = [digests[start : start + _DIGEST] for start in range(0, len(digests), _DIGEST)]
    columns = (numbers(seqs), kinds, schemas, keys, at_us, actors, causes, correlations, data, chain)
    return [RawRow(*row) for row in zip(*columns, strict=True)]


async def first_kept(database: Database, context: str) -> int:
    """Returns the oldest kept seq; 0 in an empty log."""
    events = log_of(context)
    async with database.reading() as connection:
        return await connection.scalar(select(func.min(events.c.seq)).where(events.c.context == context)) or 0


async def at_of(database: Database, context: str, seq: int) -> datetime | None:
    """Returns the instant of an event's append; None when it is not there."""
    events = log_of(context)
    async with database.reading() as connection:
        found = await connection.scalar(select(events.c.at).where(events.c.context == context, events.c.seq == seq))
    return found if isinstance(found, datetime) else None


async def first_since(database: Database, context: str, at: datetime) -> int:
    """Returns the first event appended at an instant or later; 0 when there is none. Reads every row of the log."""
    events = log_of(context)
    query = select(func.min(events.c.seq)).where(events.c.context == context, events.c.at >= at)
    async with database.reading() as connection:
        return await connection.scalar(query) or 0


async def newest_within(
    database: Database, context: str, head: int, *, since: datetime, most_bytes: int, beside: int
) -> int:
    """Returns the oldest seq from which on the log has at most `most_bytes`, and begins at `since` or later.

    Args:
        beside: bytes that an event takes besides its data and three times its key.
    """
    events = log_of(context)
    oldest = max(await first_kept(database, context), 1)
    start, left = head, most_bytes
    while start >= oldest:
        low = max(start - PAGE, oldest - 1)
        costs = func.octet_length(events.c.data) + 3 * func.octet_length(events.c.key) + beside
        page = (
            select(events.c.seq, events.c.at, func.sum(costs).over(order_by=events.c.seq.desc()).label("size"))
            .where(events.c.context == context, events.c.seq > low, events.c.seq <= start)
            .subquery()
        )
        fits = (page.c.size <= left) & (page.c.at >= since)
        query = select(func.min(page.c.seq).filter(fits), func.max(page.c.size))
        async with database.reading() as connection:
            first, size = (await connection.execute(query)).one()
        if first is None:
            break
        start = first - 1
        if start > low:
            break
        left -= size
    return start + 1
