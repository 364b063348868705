"""Writes the Kubernetes Event `Scheduled` of each pod that was bound, once no binding is in flight.

The Events are for people who run `kubectl describe pod`. They cost no binding rate: one request at a time, after the
bindings of a burst, or when one has waited for `LONGEST_WAIT_S`. What waits is lost with the process, and the oldest is
dropped when more than `MOST_WAITING` wait; the log has every binding.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from services.gateway.effects.pod_kubernetes_events import events_of
from services.gateway.kube_api.api_errors import ApiError
from services.gateway.kube_api.client import KubeApi
from shared.events.scheduling import PodPlaced
from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 5.0
MOST_WAITING = 20_000
PAUSE_S = 0.05
"""Interval of looks whether bindings are in flight."""


class _Bound(NamedTuple):
    intent: PodPlaced
    scheduler: str
    at_ns: int
    since_s: float


class ScheduledEvents:
    """Events that wait to be written."""

    def __init__(
        self,
        api: KubeApi,
        *,
        bindings_in_flight: Callable[[], bool],
        now_ns: Callable[[], int],
        group: asyncio.TaskGroup,
    ) -> None:
        """Starts with none.

        Args:
            bindings_in_flight: reports whether bindings or evictions are being carried out.
            now_ns: the wall clock.
            group: runs the writes.
        """
        self._api = api
        self._bindings_in_flight = bindings_in_flight
        self._now_ns = now_ns
        self._group = group
        self._waiting: deque[_Bound] = deque(maxlen=MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    def add(self, intent: PodPlaced, scheduler: str) -> None:
        """Notes a pod that was bound."""
        self._waiting.append(_Bound(intent, scheduler, self._now_ns(), self._now_s()))
        if self._task is None:
            self._task = self._group.create_task(self._write(), name="Scheduled events")

    async def stop(self) -> None:
        """Drops what waits."""
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def _write(self) -> None:
        try:
            while self._waiting:
                while self._bindings_in_flight() and self._now_s() - self._waiting[0].since_s < LONGEST_WAIT_S:
                    await asyncio.sleep(PAUSE_S)
                await self._record(self._waiting.popleft())
        finally:
            self._task = None

    async def _record(self, bound: _Bound) -> None:
        namespace, _, _ = bound.intent.pod.rpartition("/")
        try:
            for event, repeated in events_of(bound.intent, bound.scheduler, now_ns=bound.at_ns):
                await self._api.record_event(namespace, event, repeated)
        except ApiError as error:
            log.warning("no Kubernetes Event was recorded", extra={"pod": bound.intent.pod, "error": str(error)})

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
