"""The simulated cluster as a side of the benchmark: requests and bindings over the bus."""

import asyncio
from collections.abc import Sequence

import msgspec

from cli.bench.e2e_pod_latency import Timeline
from cli.bench.e2e_target import pod
from cli.simulate.simulator_client import SimulatedApi
from shared.bus import Bus
from shared.events.cluster import PodBound
from shared.log.announcements import batch_subject, decode_batch

NAMESPACE = "default"
CONCURRENT = 64
LARGEST_REQUEST = 500

_BOUND = PodBound.type_name()


class _Pod(msgspec.Struct):
    pod: str


_POD = msgspec.json.Decoder(_Pod)


class SimulatorSide:
    """Creates pods one a request, as the other side does, and receives bindings as any follower does."""

    def __init__(self, bus: Bus, scheduler: str) -> None:
        self._bus = bus
        self._api = SimulatedApi(bus)
        self._scheduler = scheduler
        self._timeline: Timeline | None = None
        self._subscribed = False

    async def run(self, names: Sequence[str], timeline: Timeline) -> None:
        """See `Side`."""
        self._timeline = timeline
        if not self._subscribed:
            await self._bus.subscribe(batch_subject("cluster"), self._receive)
            self._subscribed = True
        bodies = iter([(name, pod(name, NAMESPACE, self._scheduler)) for name in names])
        timeline.begin()

        async def create() -> None:
            for name, body in bodies:
                await self._api.create(body)
                timeline.created(name)

        await asyncio.gather(*(create() for _ in range(CONCURRENT)))
        await timeline.all_bound.wait()

    async def clear(self, names: Sequence[str]) -> None:
        """See `Side`."""
        for first in range(0, len(names), LARGEST_REQUEST):
            await self._api.delete_all([_place(name) for name in names[first : first + LARGEST_REQUEST]])

    def _receive(self, data: bytes) -> None:
        if self._timeline is None:
            return
        for entry in decode_batch(data).entries:
            if entry.type == _BOUND:
                self._timeline.bound(_POD.decode(entry.data).pod.partition("/")[2])


def _place(name: str) -> dict[str, object]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "gracePeriodSeconds": 0}
