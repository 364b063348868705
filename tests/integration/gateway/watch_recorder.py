"""A watcher of a real API server, and a sink that records its observations."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import Resource
from services.gateway.kube_api.unused_field_removal import ObservedObject
from services.gateway.settings import GatewaySettings
from services.gateway.watch.incomplete_list_guard import ListResult
from services.gateway.watch.watcher import Watcher
from shared.runtime.task_cancellation import cancel_and_wait

QUICK = GatewaySettings(backoff_s=0.02, backoff_max_s=0.1, absent_poll_interval_s=0.2, page_size=7)


class RecordingSink:
    """A sink that records observations."""

    def __init__(self) -> None:
        self.objects: dict[str, ObservedObject] = {}
        self.lists: list[set[str]] = []
        self.reasons: list[str] = []
        self.missing = 0
        self.observations: list[str] = []
        self.failures: list[str] = []
        self.fails = False
        self.accepts = 0

    def observed(self, resource: str, objects: Iterable[ObservedObject]) -> None:
        for seen in objects:
            self.objects[seen.key] = seen
            self.observations.append(seen.key)

    def deleted(self, resource: str, key: str) -> None:
        self.objects.pop(key, None)

    def list_begins(self, resource: str) -> None:
        pass

    def listed(self, resource: str, keys: set[str]) -> ListResult:
        self.lists.append(keys)
        for key in [key for key in self.objects if key not in keys]:
            self.deleted(resource, key)
        return ListResult.COMPLETE

    def resumed(self, resource: str, reason: str) -> None:
        self.reasons.append(reason)

    def failing(self, resource: str, reason: str) -> None:
        if reason:
            self.failures.append(reason)
        self.fails = bool(reason)

    def accepted(self, resource: str) -> None:
        self.accepts += 1

    def unavailable(self, resource: str) -> None:
        self.missing += 1


@asynccontextmanager
async def watching(api: KubeApi, resource: Resource, settings: GatewaySettings = QUICK) -> AsyncIterator[RecordingSink]:
    sink = RecordingSink()
    task = asyncio.create_task(Watcher(api, resource, settings, sink).run())
    try:
        yield sink
    finally:
        await cancel_and_wait(task)
