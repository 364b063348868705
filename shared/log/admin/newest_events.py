"""The newest events of some types in a context, for people: the configuration in force, the current writer. Folds read
pages (reader.py).
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from shared.events import Event, RecordedEvent
from shared.events.log import CarriedForward, WriterStarted
from shared.log.codec import Codec
from shared.log.database import Database
from shared.log.reader import COLUMNS, Row, read_record
from shared.log.table_names import table_of

WRITER_KEY = "writer"
"""The key of every WriterStarted: found by the index."""


class Found(NamedTuple):
    """An event and the actor that appended it."""

    record: RecordedEvent
    actor: str


async def newest(
    database: Database, context: str, kinds: Sequence[type[Event]], count: int = 1, *, key: str | None = None
) -> list[Found]:
    """Returns the newest events of these types, the newest first; where all have left the log, those that were carried
    forward, as they were recorded.

    Without a key, types that are not in tables.RARE are searched backwards from the head.
    """
    codec = Codec(kinds)
    # As constants, so that the planner sees that an index over the rare types covers them.
    names = ", ".join(f"'{kind.type_name()}'" for kind in kinds)
    carried_forward = _carried_forward(kinds)
    # The table holds this context alone. A condition on it would draw the planner to the index that it reads backwards.
    inside, values = ("", ()) if key is None else ("key = $1 and ", (key,))
    for kind_of in (f"type in ({names})", f"type = '{CarriedForward.type_name()}' and ({carried_forward})"):
        sql = f"select {COLUMNS} from {table_of(context)} where {inside}{kind_of} order by seq desc limit {count}"  # noqa: S608
        async with database.reading() as connection:
            rows = [Row(*row) for row in await connection.fetch(sql, *values)]
        if rows:
            break  # an event is carried forward only if no newer one of its object exists
    return [Found(record, row.actor) for row in rows if (record := read_record(row, codec)) is not None]


async def newest_by_key(database: Database, context: str, kinds: Sequence[type[Event]]) -> list[Found]:
    """Returns the newest event of these types for each key, by key; one that was carried forward counts as recorded.

    The types are in tables.RARE: others are searched from the beginning of the context.
    """
    codec = Codec(kinds)
    names = ", ".join(f"'{kind.type_name()}'" for kind in kinds)
    sql = f"""
        select distinct on (key) {COLUMNS} from {table_of(context)}
        where type in ({names}) or (type = '{CarriedForward.type_name()}' and ({_carried_forward(kinds)}))
        order by key, seq desc"""  # noqa: S608
    async with database.reading() as connection:
        rows = [Row(*row) for row in await connection.fetch(sql)]
    return [Found(record, row.actor) for row in rows if (record := read_record(row, codec)) is not None]


async def newest_of_keys(
    database: Database, context: str, kinds: Sequence[type[Event]], keys: Collection[str]
) -> list[Found]:
    """Returns the newest event of these types for each of these keys, by key; one that was carried forward is left out."""
    if not keys:
        return []
    sql = (
        f"select distinct on (key) {COLUMNS} from {table_of(context)} "  # noqa: S608
        "where key = any($1) and type = any($2) order by key, seq desc"
    )
    async with database.reading() as connection:
        found = await connection.fetch(sql, list(keys), [kind.type_name() for kind in kinds])
    codec, rows = Codec(kinds), [Row(*row) for row in found]
    return [Found(record, row.actor) for row in rows if (record := read_record(row, codec)) is not None]


def _carried_forward(kinds: Sequence[type[Event]]) -> str:
    return " or ".join(f"""convert_from(data, 'UTF8') like '%"type":"{kind.type_name()}"%'""" for kind in kinds)


async def writer_of(database: Database, context: str) -> Found | None:
    """Returns the newest WriterStarted: the current writer of the context, or the last one. None for a context that was
    never written.
    """
    found = await newest(database, context, [WriterStarted], key=WRITER_KEY)
    return found[0] if found else None
