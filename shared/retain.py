"""The writer's retention: partitions older than `KOORD_RETENTION_DAYS` are restated where they are still true, then dropped."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared.kube.instants import SECOND
from shared.log.retention import PartitionInUse, drop, expired, restatements

if TYPE_CHECKING:
    from shared.service import Runtime

log = logging.getLogger(__name__)

LOOK_EVERY_S = 3600.0
CHUNK = 2_000
"""Events of one append: a large one would hold up the others."""


async def watch_retention(runtime: "Runtime") -> None:
    """Look each hour, while this replica is the writer."""
    while True:
        await retain(runtime)
        await asyncio.sleep(LOOK_EVERY_S)


async def retain(runtime: "Runtime") -> int:
    """Drop what is too old; how many partitions went."""
    context = runtime.service.writes
    now = datetime.fromtimestamp(runtime.now_ns() / SECOND, UTC)
    gone = 0
    for partition in await expired(runtime.database, context, now - timedelta(days=runtime.environment.retention_days)):
        drafts = await restatements(runtime.log, context, partition, runtime.service.restates)
        for start in range(0, len(drafts), CHUNK):
            await runtime.append(drafts[start : start + CHUNK], now_ns=runtime.now_ns())
        try:
            await drop(runtime.database, context, partition)
        except PartitionInUse as error:
            log.warning(str(error), extra={"context": context})
            break
        log.info("partition dropped", extra={"context": context, "table": partition.table, "restated": len(drafts)})
        gone += 1
    return gone
