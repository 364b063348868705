"""The agents of a fleet that send inventories of their cards, as a process of their own: for `koord bench discovery`."""

import asyncio
import time
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from cli.bench.process_costs import obey
from cli.bench.report_senders import ANSWERED_S, AT_ONCE, INTERVAL_S, node_name
from shared.agents import device_inventory, receipt, subjects
from shared.agents.device_inventory import MAX_DEVICES, DeviceCondition, DeviceFound, Devices
from shared.bus import Bus
from shared.errors import KoordError

CROWDED, FLAPPING = "crowded", "flapping"
"""The odd nodes: one reports more cards than an inventory may have, one a card that fails and recovers each second."""
FLAP_S = 1.0
GIB = 1 << 30


def cards(node: str, count: int, *, sick: int | None = None) -> Devices:
    """Returns the GPUs of a node, of which at most one is unhealthy."""
    amounts = {
        "koordinator.sh/gpu-core": 100,
        "koordinator.sh/gpu-memory": 80 * GIB,
        "koordinator.sh/gpu-memory-ratio": 100,
    }
    failed = (DeviceCondition("Healthy", "False", "Xid79", "critical error 79"),)
    return Devices(
        tuple(
            DeviceFound(
                type="gpu",
                minor=minor,
                health=minor != sick,
                id=f"GPU-{node}-{minor}",
                resources=amounts,
                numa=minor * 2 // max(count, 1),
                pcie_root=f"pci0000:{minor:02x}",
                pcie_switch=f"0000:{minor:02x}:01.0",
                bus_id=f"0000:{minor:02x}:00.0",
                conditions=failed if minor == sick else (),
            )
            for minor in range(count)
        ),
        labels={"node.koordinator.sh/gpu-vendor": "nvidia", "node.koordinator.sh/gpu-model": "H100"},
    )


def send(pipe: Connection, nats: str, nodes: int, count: int) -> None:
    """Acts as the agents of all nodes, on commands from the pipe, until None comes.

    `("first", _)`: the first inventory of each node, as fast as they are answered; the reply is the seconds taken.
    `("steady", seconds)`: one of each node every INTERVAL_S, beside the odd nodes; the reply is (inventories accepted,
    refused, changes of the flapping node, bytes of an inventory).

    Args:
        count: cards of each node.
    """
    uvloop.run(_Sender(pipe, nodes, count).run(nats))


class _Sender:
    """Agents of all nodes; their cards never change, but for the odd ones'."""

    def __init__(self, pipe: Connection, nodes: int, count: int) -> None:
        self._pipe = pipe
        self._names = [node_name(number) for number in range(nodes)]
        self._count = count
        self._sequence = 0
        self._bus: Bus

    async def run(self, nats: str) -> None:
        """Runs commands until None comes."""
        self._bus = Bus(nats, name="bench agents")
        await self._bus.start()
        await obey(self._pipe, self._work)
        await self._bus.close()

    async def _work(self, kind: str, amount: float) -> Any:
        return await (self._first() if kind == "first" else self._steady(amount))

    async def _first(self) -> float:
        began = time.monotonic()
        names = [*self._names, FLAPPING]
        async with asyncio.TaskGroup() as group:
            for first in range(min(AT_ONCE, len(names))):
                group.create_task(self._some(names[first::AT_ONCE]))
        return time.monotonic() - began

    async def _some(self, names: list[str]) -> None:
        for name in names:
            if refused := await self._sent(name, self._message(name, cards(name, self._count))):
                raise KoordError(refused)

    async def _steady(self, seconds: float) -> tuple[int, int, int, int]:
        turns = int(seconds / INTERVAL_S * len(self._names))
        pause_s, began = seconds / max(turns, 1), time.monotonic()
        async with asyncio.TaskGroup() as group:
            flapping = group.create_task(self._flap(began + seconds))
            crowded = group.create_task(self._crowd(began + seconds))
            sent = []
            for turn in range(turns):
                await asyncio.sleep(max(0.0, began + turn * pause_s - time.monotonic()))
                name = self._names[turn % len(self._names)]
                sent.append(group.create_task(self._sent(name, self._message(name, cards(name, self._count)))))
        refused = [answer for answer in (task.result() for task in sent) if answer]
        if refused:
            raise KoordError(refused[0])
        size = len(self._message(FLAPPING, cards(FLAPPING, self._count)))
        return len(sent) + flapping.result(), crowded.result(), flapping.result(), size

    async def _flap(self, until_s: float) -> int:
        """Reports a card that fails and recovers; returns the number of inventories."""
        number = 0
        while (left_s := until_s - time.monotonic()) > 0:
            number += 1
            content = cards(FLAPPING, self._count, sick=0 if number % 2 else None)
            if refused := await self._sent(FLAPPING, self._message(FLAPPING, content)):
                raise KoordError(refused)
            await asyncio.sleep(min(FLAP_S, left_s))
        return number

    async def _crowd(self, until_s: float) -> int:
        """Reports too many cards, as often as the flapping node reports; returns how often that was refused."""
        content, refused = cards(CROWDED, MAX_DEVICES + 1), 0
        while (left_s := until_s - time.monotonic()) > 0:
            refused += bool(await self._sent(CROWDED, self._message(CROWDED, content)))
            await asyncio.sleep(min(FLAP_S, left_s))
        return refused

    def _message(self, node: str, content: Devices) -> bytes:
        self._sequence += 1
        return device_inventory.encode(
            node=node, boot="bench", seq=self._sequence, at_ns=time.time_ns(), devices=content
        )

    async def _sent(self, node: str, data: bytes) -> str:
        """Sends an inventory; returns why it is refused."""
        where = subjects.subject(node, subjects.INVENTORY)
        return receipt.decode(await self._bus.request(where, data, deadline_s=ANSWERED_S)).refused
