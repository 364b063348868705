"""The writer's retention: how long its context is kept, and how much of it.

Events that still hold are carried forward before their partition is dropped (`shared/log/retention_carry_forward.py`).
A context whose service declares no rule for that is never cut, whatever its age and size. The first bound that is set
applies: the setting of this service, its declaration, the setting for all.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from shared.events import Draft
from shared.log.database import FAILURES
from shared.log.disk_space import free_share, release_space, reserve_space
from shared.log.partition_retention import PartitionInUse, drop, expired
from shared.log.retention_carry_forward import (
    Candidate,
    CarryForward,
    Kept,
    candidates,
    copies,
    kept_events,
    opening_copies,
)
from shared.runtime.retention_settings import GB
from shared.runtime.service import Runtime
from shared.runtime.status import DISK_LOW, DISK_VERY_LOW

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 60.0
CHUNK = 2_000
"""Events of one append: a large append would delay the others."""


async def watch_retention(runtime: Runtime) -> None:
    """Applies retention each minute, while this replica is the writer; while the disk is nearly full, without a pause."""
    while True:
        try:
            await watch_disk(runtime)
            while await retain(runtime) and is_nearly_full(runtime.disk_free):
                await watch_disk(runtime)
        except FAILURES as error:  # an append that fails ends the process by itself
            log.warning("cannot apply retention", extra={"error": repr(error)})
        await asyncio.sleep(POLL_INTERVAL_S)


def is_nearly_full(disk_free: float | None) -> bool:
    """Returns whether reports are to be dropped early."""
    return disk_free is not None and disk_free < DISK_VERY_LOW


async def watch_disk(runtime: Runtime) -> None:
    """Measures the free share of the log's disk, and warns while it is low.

    A writer whose events yield reserves space there while there is enough, and gives it back when the disk is nearly
    full. Called before the first append too: a disk that is full would refuse that.
    """
    environment, context, yields = runtime.environment, runtime.service.writes, runtime.retention.yields
    try:
        runtime.disk_free = free = await free_share(runtime.database, environment.disk_path, environment.disk_gb)
        runtime.wal_disk_free = wal = await free_share(runtime.database, environment.wal_disk_path, 0)
        if yields and is_nearly_full(free):
            await release_space(runtime.database, context)
        elif yields and free is not None and free >= DISK_LOW:
            await reserve_space(runtime.database, context)
    except FAILURES as error:  # a folder that does not exist, too
        log.warning("cannot watch the disk of the log", extra={"error": repr(error)})
        return
    if free is not None and free < DISK_LOW:
        log.warning("the disk of the log is nearly full", extra={"free_percent": round(100 * free)})
    # Dropped reports would make no room there.
    if wal is not None and wal < DISK_LOW:
        log.warning("the disk of the write-ahead log is nearly full", extra={"free_percent": round(100 * wal)})


async def retain(runtime: Runtime) -> bool:
    """Drops the oldest partition if it is too old, or the context too large. Returns whether it was dropped."""
    context, kept, rule = runtime.service.writes, runtime.retention, runtime.service.carry_forward
    if rule is None:
        return False
    most_bytes = int(kept.gigabytes * GB) or None
    # Postgres keeps the newest hour in any case.
    days = 0.0 if kept.yields and is_nearly_full(runtime.disk_free) else kept.days
    partition = await expired(runtime.database, context, timedelta(days=days), most_bytes)
    if partition is None:
        return False
    found = await candidates(runtime.log, context, partition.low - 1, partition.high - 1, rule)
    others = await kept_events(runtime.log, sorted(runtime.service.follows.keys() - {context}))
    carried = 0
    every = list(found.values())
    for start in range(0, len(every), CHUNK):
        build = partial(_copies, runtime, rule, others, every[start : start + CHUNK])
        seen = dict(runtime.state.positions)
        records = await runtime.writer.append_from(build, now_ns=runtime.now_ns(), seen=seen)
        carried += len(records)
    carried += await _open_balances(runtime, rule, max(partition.low - 1, 0), partition.high - 1)
    try:
        await drop(runtime.database, context, partition)
    except PartitionInUse as error:
        log.warning(str(error), extra={"context": context})
        return False
    log.info("partition dropped", extra={"context": context, "table": partition.table, "carried_forward": carried})
    return True


async def _open_balances(runtime: Runtime, rule: CarryForward, after: int, upto: int) -> int:
    """Appends the balances with which the log begins behind `upto`; returns the number of their parts."""
    if rule.opening is None:
        return 0
    balances = rule.opening.begin(runtime.state)
    drafts = await opening_copies(runtime.log, runtime.service.writes, after, upto, balances, rule.opening.kinds)
    for draft in drafts:  # one by one: a part is as large as many events
        seen = dict(runtime.state.positions)
        await runtime.writer.append_from(lambda one=draft: [one], now_ns=runtime.now_ns(), seen=seen)  # type: ignore[misc]
    return len(drafts)


def _copies(runtime: Runtime, rule: CarryForward, kept: Kept, found: Sequence[Candidate]) -> list[Draft]:
    """Returns the copies of what holds by the State as it is now: the writer calls this where it appends them."""
    return copies(found, rule.holds(runtime.state, kept))
