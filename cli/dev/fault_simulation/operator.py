"""The operator: confirms lists that the gateway does not believe, once all objects that they lack are gone, and
releases evictions that wait.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Literal

import msgspec

from cli.dev.fault_simulation.memory_bus import Broker, MemoryBus
from cli.dev.fault_simulation.virtual_loop import Process
from shared.bus import NoResponse
from shared.kube.drain_control import SUBJECT as DRAIN
from shared.kube.drain_control import DrainCommand
from shared.kube.eviction_control import SUBJECT, EvictionCommand, EvictionStatus
from shared.kube.short_lists import CONFIRM, SHORT_LISTS, Confirmation, GatewayLists, ShortList

LOOKS_INTERVAL_S = 1.5
DEADLINE_S = 1.0


class Operator:
    """An operator who looks at the cluster before confirming anything."""

    def __init__(
        self, broker: Broker, objects: Mapping[str, Mapping[str, object]], known_and_live: Callable[[str], int]
    ) -> None:
        """Prepares the operator.

        Args:
            objects: resource -> key -> object, on the API server.
            known_and_live: returns the number of objects of a resource that both the log and the server have.
        """
        self.process = Process("operator")
        self._bus = MemoryBus(broker, self.process)
        self._objects = objects
        self._known_and_live = known_and_live
        self.watches_evictions = False

    async def run(self) -> None:
        """Looks at the lists until the world ends."""
        while True:
            await asyncio.sleep(LOOKS_INTERVAL_S)
            try:
                data = await self._bus.request(SHORT_LISTS, b"", deadline_s=DEADLINE_S)
                found = msgspec.json.decode(data, type=GatewayLists)
                seen = {short.resource: short.lists for short in found.short if short.repeated and self._gone(short)}
                if seen:
                    await self._bus.request(CONFIRM, msgspec.json.encode(Confirmation(seen)), deadline_s=DEADLINE_S)
            except NoResponse:
                continue

    async def hold_evictions(self) -> None:
        """Holds all evictions, until `watch_evictions` releases them."""
        await self._evictions(EvictionCommand("hold", by="operator", reason="maintenance"))

    async def watch_evictions(self) -> None:
        """Releases evictions that are held, or wait for budget, at two looks running."""
        waited = False
        while True:
            await asyncio.sleep(LOOKS_INTERVAL_S)
            found = await self._evictions(EvictionCommand("status"))
            waits = found is not None and bool(found.held_by or found.waiting)
            if waits and waited:
                await self._evictions(EvictionCommand("release", by="operator", reason="looked at"))
            waited = waits

    async def drain(self, verb: Literal["start", "cancel"], node: str) -> None:
        """Begins the drain of a node, or ends it; once, whether or not the descheduler answers."""
        command = DrainCommand(verb, node, by="operator", reason="maintenance")
        with suppress(NoResponse):
            await self._bus.request(DRAIN, msgspec.json.encode(command), deadline_s=DEADLINE_S)

    async def _evictions(self, command: EvictionCommand) -> EvictionStatus | None:
        try:
            data = await self._bus.request(SUBJECT, msgspec.json.encode(command), deadline_s=DEADLINE_S)
        except NoResponse:
            return None
        return msgspec.json.decode(data, type=EvictionStatus)

    def _gone(self, short: ShortList) -> bool:
        """Reports whether the server has none of the missing objects."""
        named = self._objects[short.resource].keys() & set(short.names)
        return not named and short.known - short.missing == self._known_and_live(short.resource)
