"""The GPUs of the nodes of a world as they are, and the inventories in which agents report them."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

from cli.dev.fault_simulation.cluster_objects import GPUS
from cli.dev.fault_simulation.node_agents import DEADLINE_S, NodeAgent
from shared.agents import device_inventory, receipt, subjects
from shared.agents.device_inventory import DeviceCondition, DeviceFound, Devices
from shared.bus import NoResponse

INVENTORY_INTERVAL_S = 4.0
LOOK_INTERVAL_S = 0.3
"""Interval at which an agent looks whether its cards have changed."""
MISSING, UNHEALTHY, REPLACED = "missing", "unhealthy", "replaced"
FAILURES = (MISSING, UNHEALTHY, REPLACED)
"""What may happen to a card: gone, unhealthy, or another one in its place."""

_AMOUNTS = {
    "koordinator.sh/gpu-core": 100,
    "koordinator.sh/gpu-memory-ratio": 100,
    "koordinator.sh/gpu-memory": 8 << 30,
}
_SICK = (DeviceCondition("Healthy", "False", "Xid79", "critical error 79"),)


class NodeCards:
    """Simulates the GPUs of one node, and reports their inventory as the agent of the node does.

    Attributes:
        node: its name.
        failed: minor number of a card -> its failure, a member of FAILURES; other cards are healthy.
        answered: the newest inventory for which a receipt came; None before the first.
        accepted: the inventory of the newest receipt, if by that all of it is in the log; None once the cards have
            changed since.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.failed: dict[int, str] = {}
        self.answered: Devices | None = None
        self.accepted: Devices | None = None

    @property
    def inventory(self) -> Devices:
        """Returns what an agent finds now."""
        return Devices(tuple(self._found()))

    def _found(self) -> Iterator[DeviceFound]:
        for minor in range(GPUS):
            failure = self.failed.get(minor, "")
            if failure != MISSING:
                yield DeviceFound(
                    type="gpu",
                    minor=minor,
                    health=failure != UNHEALTHY,
                    id=f"{self.node}-gpu-{minor}{failure if failure == REPLACED else ''}",
                    resources=_AMOUNTS,
                    conditions=_SICK if failure == UNHEALTHY else (),
                )

    async def report(self, agent: NodeAgent, answered: Callable[["NodeCards"], object]) -> None:
        """Reports the cards as an agent does: at once when they change, and repeated; until the world ends.

        Args:
            answered: called with each receipt of an inventory that is not refused.
        """
        loop = asyncio.get_running_loop()
        sequence, newest, next_s = 0, None, loop.time()
        while True:
            found = self.inventory
            if found == newest and loop.time() < next_s:
                await asyncio.sleep(LOOK_INTERVAL_S)
                continue
            if found != newest:
                sequence, newest, self.accepted = sequence + 1, found, None
            data = device_inventory.encode(node=self.node, boot="1", seq=sequence, at_ns=time.time_ns(), devices=found)
            where = subjects.subject(self.node, subjects.INVENTORY)
            try:
                answer = receipt.decode(await agent.bus.request(where, data, deadline_s=DEADLINE_S))
            except NoResponse:
                next_s = loop.time()
                continue  # with what it finds then
            if not answer.refused:
                self.answered, self.accepted = found, found if answer.accepted else None
                answered(self)
            next_s = loop.time() + INVENTORY_INTERVAL_S


def healthy_minors(device: dict[str, Any]) -> frozenset[int]:
    """Returns the GPUs of a Device that pods may get."""
    listed = device.get("spec", {}).get("devices", [])
    return frozenset(each["minor"] for each in listed if each["type"] == "gpu" and each["health"])
