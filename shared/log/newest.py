"""The newest events of some types in a context, for people: what is in force, who writes. Folds read pages (reader.py)."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import and_, func, or_, select

from shared.events import Event, Recorded
from shared.events.log import ConfigTaken, Restated, WriterStarted
from shared.log.codec import Codec
from shared.log.database import Database
from shared.log.models import log_of
from shared.log.reader import Row, recorded

WRITER_KEY = "writer"
"""The key of every WriterStarted: found by the index."""


class Found(NamedTuple):
    """An event with who appended it."""

    record: Recorded
    actor: str


async def newest(
    database: Database, context: str, kinds: Sequence[type[Event]], count: int = 1, *, key: str | None = None
) -> list[Found]:
    """The newest events of these types, the newest first; one that retention has said again counts where it was said again.

    Without a key the log is read backwards from its head until `count` are found.
    """
    codec, events = Codec(kinds), log_of(context)
    names = [kind.type_name() for kind in kinds]
    text = func.convert_from(events.c.data, "UTF8")
    again = or_(*(text.like(f'%"type":"{name}"%') for name in names))
    query = select(events).where(
        events.c.context == context, or_(events.c.type.in_(names), and_(events.c.type == Restated.type_name(), again))
    )
    if key is not None:
        query = query.where(events.c.key == key)
    async with database.reading() as connection:
        rows = [Row(*row) for row in await connection.execute(query.order_by(events.c.seq.desc()).limit(count))]
    decoded = ((row, codec.one(row.type, row.data)) for row in rows)
    return [Found(recorded(row, event), row.actor) for row, event in decoded if event is not None]


async def writer_of(database: Database, context: str) -> Found | None:
    """The newest WriterStarted: who writes the context, or wrote it last. None for one that was never written."""
    found = await newest(database, context, [WriterStarted], key=WRITER_KEY)
    return found[0] if found else None


async def in_force(database: Database, context: str) -> Found | None:
    """The newest ConfigTaken; None when the context's writer has taken none over."""
    found = await newest(database, context, [ConfigTaken])
    return found[0] if found else None
