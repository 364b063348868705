"""Tells agents which pods their nodes have: those that new_request, when they ask and whenever it changes."""

import asyncio
import logging

from services.metrics_ingest.actions.state import ActionIngestState
from services.metrics_ingest.mqtt_session import MqttSession, NoBroker
from shared.agents import node_pods, subjects
from shared.runtime.service import Runtime
from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

SUBSCRIPTION_TTL_S = 180.0
"""An agent that has not logged again for so long that it wants them is gone, or is published by another replica."""
DEBOUNCE_S = 0.5
"""What changes in this time is published at once."""
POLL_INTERVAL_S = 5.0


class PodPublisher:
    """Tells each node's agent what it is published, over the bus and, where there is one, the broker, which keeps it."""

    def __init__(self, runtime: Runtime, mqtt: MqttSession | None) -> None:
        self._runtime = runtime
        self._mqtt = mqtt
        self._requested_s: dict[str, float] = {}
        self._published: dict[str, tuple[int, int]] = {}
        self._new_request = asyncio.Event()

    def request(self, node: str) -> None:
        """A node's agent asks: it is published again, whatever it was published before."""
        self._requested_s[node] = asyncio.get_running_loop().time()
        self._published.pop(node, None)
        self._new_request.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        logged = False
        while True:
            try:
                await self._publish()
                logged = False
            except NoBroker as error:
                if not logged:  # once an outage
                    log.warning("agents wait for the pods of their nodes", extra={"why": str(error)})
                logged = True
            self._new_request.clear()
            changed = asyncio.create_task(self._runtime.changed(POLL_INTERVAL_S))
            new_request = asyncio.create_task(self._new_request.wait())
            try:
                await asyncio.wait({changed, new_request}, return_when=asyncio.FIRST_COMPLETED, timeout=POLL_INTERVAL_S)
            finally:
                await cancel_and_wait(changed, new_request)
            await asyncio.sleep(DEBOUNCE_S)

    async def _publish(self) -> None:
        state: ActionIngestState = self._runtime.state
        now_s = asyncio.get_running_loop().time()
        for node, requested_s in list(self._requested_s.items()):
            if now_s - requested_s > SUBSCRIPTION_TTL_S:
                del self._requested_s[node]
                self._published.pop(node, None)
                continue
            found = state.node_views.get(node)
            position = (found.epoch, found.seq) if found else (state.cluster_epoch, 0)
            if self._published.get(node) == position:
                continue
            data = node_pods.encode(state.node_pods(node))
            published = await self._runtime.bus.publish(subjects.subject(node, subjects.PODS), data)
            if self._mqtt is not None:
                await self._mqtt.publish(subjects.topic(node, subjects.PODS), data, retain=True)
                published = True
            if published:
                self._published[node] = position
