"""Node agents as far as the log sees them: reports at an interval, and requested evictions, each until its receipt."""

import asyncio
import time

from cli.dev.fault_simulation.cluster_objects import REPORT_INTERVAL_S
from cli.dev.fault_simulation.memory_bus import Broker, MemoryBus
from cli.dev.fault_simulation.virtual_loop import Process
from shared.agents import actions, receipt, report, subjects
from shared.bus import NoResponse
from shared.kube.instants import SECOND

DEADLINE_S = 1.0


class NodeAgent:
    """The agent of one node.

    Attributes:
        bus: its connection.
    """

    def __init__(self, broker: Broker, node: str, offset_s: float) -> None:
        self.node = node
        self.process = Process(f"agent of {node}")
        self.bus = MemoryBus(broker, self.process)
        self._offset_s = offset_s
        self._actions = 0

    async def run(self) -> None:
        """Reports until the world ends."""
        await asyncio.sleep(self._offset_s)
        number = 0
        while True:
            number += 1
            samples = report.Series((0, 1000), (500_000, 600_000), (2**30, 2**30))
            await self._send(
                subjects.REPORT,
                report.encode(
                    report.Report(
                        node=self.node,
                        boot="1",
                        seq=number,
                        at_ns=time.time_ns(),
                        interval_ns=int(REPORT_INTERVAL_S * SECOND),
                        node_usage=samples,
                        system_usage=report.Series((0, 1000), (100_000, 100_000), (2**28, 2**28)),
                    )
                ),
            )
            await asyncio.sleep(REPORT_INTERVAL_S)

    async def request_eviction(self, uid: str) -> None:
        """Requests that a pod be evicted."""
        self._actions += 1
        action = actions.EvictionRequested(pod_uid=uid, reason="memory")
        found = actions.ActionReport(self.node, "1", self._actions, time.time_ns(), action)
        await self._send(subjects.ACTION, actions.encode(found))

    async def _send(self, kind: str, data: bytes) -> None:
        """Sends a message until it is acknowledged, as agents do."""
        while True:
            try:
                answer = await self.bus.request(subjects.subject(self.node, kind), data, deadline_s=DEADLINE_S)
            except NoResponse:
                continue
            receipt.decode(answer)
            return
