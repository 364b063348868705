"""Drops old partitions without losing the state of live objects.

A partition is dropped when its last event is older than the context keeps, or when the context takes more space than it
may. Before that the writer appends again, as `CarriedForward`, each live object whose last event lies in it, so that a
fold may begin at the oldest kept seq. The basis of a decision stays explainable for as long as its own events are kept.

A role that writes a context does not own its tables, so a function of the database drops the partition on its behalf.
"""

import asyncio
import re
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError

from shared.errors import KoordError
from shared.events import EVENT_TYPES, Draft, Event
from shared.events.log import CarriedForward, ConfigApplied
from shared.log.database import Database, sqlstate
from shared.log.reader import LogReader, Row
from shared.log.tables import log_of, table_of

DROP_ATTEMPTS = 12
"""About half a minute."""

LOCK_NOT_AVAILABLE = "55P03"

_BOUNDS = re.compile(r"FROM \('?(\d+)'?\) TO \('?(\d+)'?\)")


class Partition(NamedTuple):
    """A range of a context's seqs: `low <= seq < high`."""

    table: str
    low: int
    high: int


class PartitionInUse(KoordError):
    """A partition cannot be dropped while a transaction reads its context; the next round tries again."""

    def __init__(self, context: str, partition: Partition) -> None:
        super().__init__(
            f"{partition.table} is too old and cannot be dropped: a long transaction reads {context}; see pg_stat_activity"
        )


class _Named(msgspec.Struct):
    """The resource of an object's event, which distinguishes objects of several resources with the same key."""

    resource: str = ""


async def expired(database: Database, context: str, before: datetime, most_bytes: int | None = None) -> list[Partition]:
    """Returns the full partitions to drop, oldest first; never the one that is being written.

    Args:
        before: a partition whose last event is older is dropped.
        most_bytes: of a context that takes more on disk, indexes included, the oldest partitions are dropped until it
            does not.
    """
    query = text(
        "select c.relname, pg_get_expr(c.relpartbound, c.oid) as bounds, pg_total_relation_size(c.oid) as bytes "
        "from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = to_regclass(:parent)"
    )
    found = []
    events = log_of(context)
    async with database.reading() as connection:
        rows = (await connection.execute(query, {"parent": table_of(context)})).all()
        head = await connection.scalar(select(func.max(events.c.seq)).where(events.c.context == context)) or 0
        partitions = [
            (Partition(name, int(match[1]), int(match[2])), int(size))
            for name, bounds, size in rows
            if (match := _BOUNDS.search(bounds))
        ]
        partitions.sort(key=lambda sized: sized[0].low)
        total = sum(size for _, size in partitions)
        for partition, size in partitions:
            inside = (events.c.context == context, events.c.seq >= partition.low, events.c.seq < partition.high)
            last = select(events.c.at).where(*inside).order_by(events.c.seq.desc()).limit(1)
            newest = await connection.scalar(last)
            too_old = newest is not None and newest < before
            too_much = most_bytes is not None and total > most_bytes
            if partition.high > head or newest is None or not (too_old or too_much):
                break
            found.append(partition)
            total -= size
    return found


async def carried_forward(
    reader: LogReader, context: str, partition: Partition, ended_by: Mapping[type[Event], type[Event]]
) -> list[Draft]:
    """Returns the events to append again before a partition is dropped: the last events of live objects, and the
    configuration in force.
    """
    kept: tuple[type[Event], ...] = (*ended_by, ConfigApplied)
    lives = {kind.type_name(): kind.type_name() for kind in kept}
    lives |= {end.type_name(): kind.type_name() for kind, end in ended_by.items()}
    last: dict[tuple[str, str, str], Row] = {}
    async for row in reader.rows(context=context, after=partition.low - 1, upto=partition.high - 1):
        original = _original(row)
        if original is not None and (family := lives.get(original.type)) is not None:
            last[_identity(family, original)] = original
    drafts = []
    for identity, row in last.items():
        if row.type == identity[0] and not await _recorded_later(reader, context, partition, identity, lives):
            event = CarriedForward(name=row.key, original=f"{context}/{row.seq}", event=msgspec.Raw(row.data))
            drafts.append(Draft(event, correlation=row.correlation))
    return drafts


async def drop(database: Database, context: str, partition: Partition) -> None:
    """Drops a partition. The server waits only a moment for readers of the context; the call then tries again.

    Raises:
        PartitionInUse: a transaction has been reading the context all along.
    """
    query = text("select koord_drop_partition(:context, :name)")
    for attempt in range(DROP_ATTEMPTS):
        try:
            async with database.reading() as connection:
                await connection.execute(query, {"context": context, "name": partition.table})
        except DBAPIError as error:
            if sqlstate(error) != LOCK_NOT_AVAILABLE:
                raise
            await asyncio.sleep(min(0.1 * 2**attempt, 5.0))
        else:
            return
    raise PartitionInUse(context, partition)


def _original(row: Row) -> Row | None:
    """Returns the row itself, or the event that it carries forward; None for a type that this release does not have."""
    if row.type != CarriedForward.type_name():
        return row if row.type in EVENT_TYPES else None
    carried = msgspec.json.decode(row.data, type=CarriedForward)
    kind = msgspec.json.decode(carried.event, type=dict[str, msgspec.Raw])["type"]
    return row._replace(type=msgspec.json.decode(kind, type=str), data=bytes(carried.event))


def _identity(family: str, row: Row) -> tuple[str, str, str]:
    return family, row.key, msgspec.json.decode(row.data, type=_Named).resource


async def _recorded_later(
    reader: LogReader, context: str, partition: Partition, identity: tuple[str, str, str], lives: Mapping[str, str]
) -> bool:
    """Reports whether a later partition holds an event of the same object."""
    async for row in reader.rows(context=context, after=partition.high - 1, key=identity[1]):
        original = _original(row)
        if original is not None and original.type in lives and _identity(lives[original.type], original) == identity:
            return True
    return False
