"""Reports the node's devices to device discovery: at once when they change, and repeated at intervals."""

import asyncio
import logging
import time
from collections.abc import Callable

from services.node_agent.devices.device_collector import DeviceCollector
from services.node_agent.report_builder import Sender
from services.node_agent.transport.outbox import Message
from shared.agents import device_inventory
from shared.agents.device_inventory import Devices
from shared.agents.subjects import INVENTORY
from shared.kube.instants import SECOND

log = logging.getLogger(__name__)

COLLECT_INTERVAL_S = 3.0
"""Seconds between two collections (spec/node-agent.md 6.2)."""
REPEAT_INTERVAL_NS = 60 * SECOND
"""Nanoseconds after which unchanged devices are reported again: a message may be lost, and discovery may be new."""


class DeviceReporter:
    """Reports one node's devices."""

    def __init__(self, collector: DeviceCollector, sender: Sender, put: Callable[[Message], None]) -> None:
        self._collector, self._sender, self._put = collector, sender, put
        self._reported: Devices | None = None
        self._reported_ns = 0
        self._seq = 0
        self._logged: tuple[str, ...] = ()

    async def run(self) -> None:
        """Collects and reports until cancelled."""
        while True:
            self.run_cycle(time.monotonic_ns(), time.time_ns())
            await asyncio.sleep(COLLECT_INTERVAL_S)

    def run_cycle(self, now_ns: int, wall_ns: int) -> None:
        """Collects the devices, and reports them if they have changed or the last report is old.

        Args:
            now_ns, wall_ns: monotonic clock and time since the epoch.
        """
        if not self._collector.settled:
            return
        found = self._collector.collect()
        if self._collector.faults != self._logged:
            self._logged = self._collector.faults
            for fault in self._logged:
                log.warning("a device is not reported", extra={"why": fault})
        changed = found != self._reported
        if not changed and now_ns - self._reported_ns < REPEAT_INTERVAL_NS:
            return
        self._seq += changed
        self._reported, self._reported_ns = found, now_ns
        data = device_inventory.encode(
            node=self._sender.node, boot=self._sender.boot, seq=self._seq, at_ns=wall_ns, devices=found
        )
        self._put(Message(INVENTORY, self._seq, data))
