"""Retention's statements over `MemoryPostgres`: the oldest partition by its age, its events, and its removal.

Ages are measured as in migration 0005, but a world lasts half a minute: `KEPT_AT_LEAST_S` stands for two days.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from cli.dev.fault_simulation.memory_log import Context
from cli.dev.fault_simulation.memory_log import Row as MemoryRow
from shared.events.log import CarriedForward
from shared.log.partition_retention import Partition
from shared.log.reader import Row
from shared.log.retention_carry_forward import Kept

KEPT_AT_LEAST_S = 1.0
POLL_INTERVAL_S = 0.75

_COPY = CarriedForward.type_name()


async def expired(database: Any, context: str, keep: timedelta, _most_bytes: int | None = None) -> Partition | None:
    """Returns the oldest partition if it is full and older than `keep`."""
    postgres = database.postgres
    keep_s = max(keep.total_seconds(), KEPT_AT_LEAST_S)
    return await database.query(lambda: _expired(postgres.contexts[context], keep_s, postgres.clock_us()))  # type: ignore[no-any-return]


async def drop(database: Any, context: str, partition: Partition) -> None:
    """Drops a partition."""
    await database.query(lambda: database.postgres.drop_before(context, partition.high))


async def page(reader: Any, context: str, after: int, upto: int, kinds: list[str]) -> list[Row]:
    """Returns the rows of some types in a range."""
    return [row async for row in reader.rows(context=context, after=after, upto=upto) if row.type in kinds]


async def kept_events(reader: Any, names: Sequence[str]) -> Kept:
    """Returns which events of these contexts are still in their logs."""
    oldest: dict[str, int] = {}
    since_us: list[int] = []
    originals: set[str] = set()
    for name in names:
        context = reader.database.postgres.contexts[name]
        first, copied = await reader.database.query(partial(_oldest_and_originals, context))
        if first is not None:
            oldest[name] = first.seq
            since_us.append(first.at_us)
        originals |= copied
    return Kept(
        has=lambda cause: cause.seq >= oldest.get(cause.context, 0) or str(cause) in originals,
        since_ns=min(since_us, default=2**62) * 1000,
    )


def _oldest_and_originals(context: Context) -> tuple[MemoryRow | None, set[str]]:
    rows = [row for row in context.rows if row.type == _COPY]
    originals = {msgspec.json.decode(row.data, type=CarriedForward).original for row in rows}
    return (context.rows[0] if context.rows else None), originals


def _expired(context: Context, keep_s: float, now_us: int) -> Partition | None:
    """Returns the oldest partition if it may go. Its age is the least of three, so that one wrong clock drops nothing."""
    rows = context.partition_rows
    low = context.first // rows * rows
    high = low + rows
    if high > context.head.seq:
        return None
    full_us = context.full_us.setdefault(low, now_us)
    last_us, head_us = context.rows[high - 1 - context.first].at_us, context.rows[-1].at_us
    age_us = min(now_us - last_us, head_us - last_us, now_us - full_us)
    return Partition(f"{context.name}/{low}", low, high) if age_us > keep_s * 1e6 else None
