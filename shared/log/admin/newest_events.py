"""The newest events of some types in a context, for people: what is in force, who writes. Folds read pages (reader.py)."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import and_, func, literal, or_, select

from shared.events import Event, RecordedEvent
from shared.events.log import CarriedForward, WriterStarted
from shared.log.codec import Codec
from shared.log.database import Database
from shared.log.reader import Row, recorded
from shared.log.tables import log_of

WRITER_KEY = "writer"
"""The key of every WriterStarted: found by the index."""


class Found(NamedTuple):
    """An event with who appended it."""

    record: RecordedEvent
    actor: str


async def newest(
    database: Database, context: str, kinds: Sequence[type[Event]], count: int = 1, *, key: str | None = None
) -> list[Found]:
    """The newest events of these types, the newest first; one that retention has said again counts where it was said again.

    Without a key, types that are not in models.RARE are looked for backwards from the head.
    """
    codec, events = Codec(kinds), log_of(context)
    # As constants, so that the planner sees that an index over the rare types covers them.
    names = [literal(kind.type_name(), literal_execute=True) for kind in kinds]
    # The table holds this context alone. Saying so again would draw the planner to the index by which it would read backwards.
    inside = [] if key is None else [events.c.key == key]
    said_again = or_(
        *(func.convert_from(events.c.data, "UTF8").like(f'%"type":"{kind.type_name()}"%') for kind in kinds)
    )
    for kind_of in (events.c.type.in_(names), and_(events.c.type == CarriedForward.type_name(), said_again)):
        query = select(events).where(*inside, kind_of).order_by(events.c.seq.desc()).limit(count)
        async with database.reading() as connection:
            rows = [Row(*row) for row in await connection.execute(query)]
        if rows:
            break  # what retention says again is what has not been said since
    decoded = ((row, codec.one(row.type, row.data)) for row in rows)
    return [Found(recorded(row, event), row.actor) for row, event in decoded if event is not None]


async def writer_of(database: Database, context: str) -> Found | None:
    """The newest WriterStarted: who writes the context, or wrote it last. None for one that was never written."""
    found = await newest(database, context, [WriterStarted], key=WRITER_KEY)
    return found[0] if found else None
