"""The writer's retention: how long its context is kept, and how much of it.

Live objects are carried forward before their partition is dropped, unless the service declares that old events have no
use. The first bound that is set applies: the setting of this service, its declaration, the setting for all.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec import Meta

from shared.kube.instants import SECOND
from shared.log.database import FAILURES
from shared.log.partition_retention import PartitionInUse, carried_forward, drop, expired
from shared.settings import Settings

if TYPE_CHECKING:
    from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 60.0
CHUNK = 2_000
"""Events of one append: a large append would delay the others."""

DAYS = 30.0
GB = 10**9


class Retention(NamedTuple):
    """Retention of a context, as its service declares it; 0 where it declares nothing.

    Attributes:
        days: how long its events are kept.
        gigabytes: how much they may take on disk.
        carries_forward: live objects outlast their partition.
    """

    days: float = 0.0
    gigabytes: float = 0.0
    carries_forward: bool = True


class RetentionSettings(Settings, frozen=True, kw_only=True):
    """Retention of a service's context: `KOORD_<SERVICE>_<FIELD>`, else its declaration, else `KOORD_<FIELD>`."""

    retention_days: Annotated[
        float, Meta(ge=0, description="days that events are kept; 0: what the service declares, or 30")
    ] = 0.0
    retention_gb: Annotated[
        float,
        Meta(ge=0, description="GB on disk, beyond which the oldest go; 0: what the service declares, or no bound"),
    ] = 0.0

    @classmethod
    def of(cls, service: str, declared: Retention, environment: Mapping[str, str]) -> Retention:
        """Returns the retention in force for a service; a bound of 0 is none.

        Raises:
            BadSetting: a value is no number.
        """
        own, for_all = cls.load(service, environment), cls.load("", environment)
        return Retention(
            own.retention_days or declared.days or for_all.retention_days or DAYS,
            own.retention_gb or declared.gigabytes or for_all.retention_gb,
            declared.carries_forward,
        )


async def watch_retention(runtime: "Runtime") -> None:
    """Applies retention each minute, while this replica is the writer."""
    while True:
        try:
            await retain(runtime)
        except FAILURES as error:  # an append that fails ends the process by itself
            log.warning("cannot apply retention", extra={"error": repr(error)})
        await asyncio.sleep(POLL_INTERVAL_S)


async def retain(runtime: "Runtime") -> int:
    """Drops partitions that are too old, or beyond the size. Returns how many."""
    context, kept = runtime.service.writes, runtime.retention
    now = datetime.fromtimestamp(runtime.now_ns() / SECOND, UTC)
    most_bytes = int(kept.gigabytes * GB) or None
    gone = 0
    for partition in await expired(runtime.database, context, now - timedelta(days=kept.days), most_bytes):
        drafts = []
        if kept.carries_forward:
            drafts = await carried_forward(runtime.log, context, partition, runtime.service.carries_forward)
        for start in range(0, len(drafts), CHUNK):
            await runtime.append(drafts[start : start + CHUNK], now_ns=runtime.now_ns())
        try:
            await drop(runtime.database, context, partition)
        except PartitionInUse as error:
            log.warning(str(error), extra={"context": context})
            break
        log.info(
            "partition dropped", extra={"context": context, "table": partition.table, "carried_forward": len(drafts)}
        )
        gone += 1
    return gone
