"""Faults of the log that were mended: announcements that are believed, and retention by the clock of a service."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from cli.dev.fault_simulation import retention_adapter
from services.scheduler import retention_carry_forward as scheduler_retention
from shared.events import RecordedEvent
from shared.log import announcements
from shared.log.context_buffer import ContextBuffer
from shared.log.follower import Follower
from shared.log.partition_retention import Partition
from shared.log.retention_carry_forward import CarryForward, Newest


@contextmanager
def announcements_are_believed() -> Iterator[None]:
    """Fault 01: a batch counts for the context that it names, and Postgres is not asked for its digest."""

    def receive(self: Follower, _name: str, data: bytes) -> None:
        batch = announcements.decode_batch(data)
        if batch.context in self._contexts:
            self._contexts[batch.context].batch(data, batch)
            self._apply_waiting(batch.context)

    async def vouch(self: Follower, name: str, context: ContextBuffer) -> None:
        context.vouching = False
        if waiting := context.unbroken():
            context.vouch(waiting)
            self._apply_waiting(name)

    with patch.object(Follower, "_receive_batch", receive), patch.object(Follower, "_vouch", vouch):
        yield


def the_clock_of_a_service_ages_its_partitions() -> AbstractContextManager[Any]:
    """Fault 05: a clock that is ahead drops what is young."""

    async def expired(database: Any, context: str, keep: timedelta, _most_bytes: int | None = None) -> Partition | None:
        now_us = time.time_ns() // 1000

        def oldest() -> Partition | None:
            log = database.postgres.contexts[context]
            low = log.first // log.partition_rows * log.partition_rows
            high = low + log.partition_rows
            if high > log.head.seq:
                return None
            age_us = now_us - log.rows[high - 1 - log.first].at_us
            return Partition(f"{context}/{low}", low, high) if age_us > keep.total_seconds() * 1e6 else None

        return await database.query(oldest)  # type: ignore[no-any-return]

    return patch.object(retention_adapter, "expired", expired)


@contextmanager
def older_statuses_are_carried_forward() -> Iterator[None]:
    """A status is carried forward although a newer one is in a later partition, and outlasts that: what replaced a copy
    that stays is not carried forward in its turn.
    """
    begin = Newest.__init__

    def is_there(view: Any, _record: Any, event: Any) -> bool:
        return event.uid in view.pods or event.name in view.objects.get(event.resource, {})

    def begin_without_copies(self: Newest, rule: CarryForward, earlier: Sequence[RecordedEvent] = ()) -> None:
        begin(self, rule, earlier)
        self._staying.clear()

    with (
        patch.object(scheduler_retention, "_is_desired", is_there),
        patch.object(Newest, "__init__", begin_without_copies),
    ):
        yield


LOG_MUTATIONS = (
    announcements_are_believed,
    the_clock_of_a_service_ages_its_partitions,
    older_statuses_are_carried_forward,
)
