"""Retention's statements over `MemoryPostgres`: which partitions are too old, and their removal."""

from datetime import datetime
from typing import Any

from cli.dev.fault_simulation.log_adapters import EPOCH
from cli.dev.fault_simulation.memory_log import Context
from shared.log.partition_retention import Partition

MICROSECOND_S = 1e-6


async def expired(database: Any, context: str, before: datetime, _most_bytes: int | None = None) -> list[Partition]:
    """Returns the full partitions whose last event is older, oldest first; never the one that is being written."""
    limit_us = int((before - EPOCH).total_seconds() / MICROSECOND_S)
    found: list[Partition] = await database.query(lambda: _too_old(database.postgres.contexts[context], limit_us))
    return found


async def drop(database: Any, context: str, partition: Partition) -> None:
    """Drops a partition."""
    await database.query(lambda: database.postgres.contexts[context].drop_before(partition.high))


def _too_old(context: Context, limit_us: int) -> list[Partition]:
    found, rows = [], context.partition_rows
    low = context.first // rows * rows
    while low + rows <= context.head.seq:
        last = context.row(low + rows - 1)
        if last is None or last.at_us >= limit_us:
            break
        found.append(Partition(f"{context.name}/{low}", low, low + rows))
        low += rows
    return found
