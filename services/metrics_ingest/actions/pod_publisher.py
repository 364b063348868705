"""Tells agents which pods their nodes have: those that asked, when they ask and whenever it changes."""

import asyncio
import logging

from services.metrics_ingest.actions.state import DeedsState
from services.metrics_ingest.mqtt_session import Mqtt, NoBroker
from shared.agents import node_pods, subjects
from shared.service import Runtime
from shared.tasks import end

log = logging.getLogger(__name__)

WANTED_FOR_S = 180.0
"""An agent that has not said again for so long that it wants them is gone, or is told by another replica."""
SETTLE_S = 0.5
"""What changes in this time is told at once."""
POLL_INTERVAL_S = 5.0


class PodsDesk:
    """Tells each node's agent what it is told, over the bus and, where there is one, the broker, which keeps it."""

    def __init__(self, runtime: Runtime, mqtt: Mqtt | None) -> None:
        self._runtime = runtime
        self._mqtt = mqtt
        self._wanted_s: dict[str, float] = {}
        self._told: dict[str, tuple[int, int]] = {}
        self._asked = asyncio.Event()

    def wanted(self, node: str) -> None:
        """A node's agent asks: it is told again, whatever it was told before."""
        self._wanted_s[node] = asyncio.get_running_loop().time()
        self._told.pop(node, None)
        self._asked.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        said = False
        while True:
            try:
                await self._tell()
                said = False
            except NoBroker as error:
                if not said:  # once an outage
                    log.warning("agents wait to be told of their pods", extra={"why": str(error)})
                said = True
            self._asked.clear()
            changed = asyncio.create_task(self._runtime.changed(POLL_INTERVAL_S))
            asked = asyncio.create_task(self._asked.wait())
            try:
                await asyncio.wait({changed, asked}, return_when=asyncio.FIRST_COMPLETED, timeout=POLL_INTERVAL_S)
            finally:
                await end(changed, asked)
            await asyncio.sleep(SETTLE_S)

    async def _tell(self) -> None:
        state: DeedsState = self._runtime.state
        now_s = asyncio.get_running_loop().time()
        for node, wanted_s in list(self._wanted_s.items()):
            if now_s - wanted_s > WANTED_FOR_S:
                del self._wanted_s[node]
                self._told.pop(node, None)
                continue
            found = state.residents.get(node)
            position = (found.epoch, found.seq) if found else (state.cluster_epoch, 0)
            if self._told.get(node) == position:
                continue
            data = node_pods.encode(state.node_pods(node))
            told = await self._runtime.bus.publish(subjects.subject(node, subjects.PODS), data)
            if self._mqtt is not None:
                await self._mqtt.publish(subjects.topic(node, subjects.PODS), data, retain=True)
                told = True
            if told:
                self._told[node] = position
