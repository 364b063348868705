"""Finds the partition of a context that may be dropped, and drops it.

Postgres measures its age, by its own clock and by the log's times, one partition at a time; no caller can make it drop
one of the newest days (migration 0005). A role that writes a context does not own its tables, so a function of the
database drops the partition on its behalf.
"""

import asyncio
from datetime import timedelta
from typing import NamedTuple

from asyncpg import PostgresError

from shared.errors import KoordError
from shared.log.database import Database, sqlstate

DROP_ATTEMPTS = 12
"""About half a minute."""

LOCK_NOT_AVAILABLE = "55P03"


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


async def expired(database: Database, context: str, keep: timedelta, most_bytes: int | None = None) -> Partition | None:
    """Returns the oldest partition if it may be dropped: it is full, and its last event is older than `keep`.

    Args:
        keep: counted by the clock of Postgres and up to the head's time, whichever is less.
        most_bytes: in a context that takes more on disk, indexes included, a younger one may be dropped too, but none
            of the newest days.
    """
    note = "select koord_extend($1, 0)"  # notes which partitions are full
    query = "select name, low, high from koord_expired_partition($1, $2, $3)"
    async with database.reading() as connection:
        await connection.fetchval(note, context)
        row = await connection.fetchrow(query, context, keep, most_bytes)
    return Partition(*row) if row is not None else None


async def drop(database: Database, context: str, partition: Partition) -> None:
    """Drops a partition. The server waits only a moment for readers of the context; the call then tries again.

    Raises:
        PartitionInUse: a transaction has been reading the context all along.
    """
    for attempt in range(DROP_ATTEMPTS):
        try:
            async with database.reading() as connection:
                await connection.fetchval("select koord_drop_partition($1, $2)", context, partition.table)
        except PostgresError as error:
            if sqlstate(error) != LOCK_NOT_AVAILABLE:
                raise
            await asyncio.sleep(min(0.1 * 2**attempt, 5.0))
        else:
            return
    raise PartitionInUse(context, partition)
