"""Publishes the pods of a node to its agent, on request and whenever they change."""

import asyncio
import logging

from services.metrics_ingest.agent_actions.node_pods_and_actions_state import ActionIngestState
from shared.agents import node_pods, subjects
from shared.ingest.mqtt_session import BrokerUnavailable, MqttSession
from shared.runtime.service import Runtime
from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

SUBSCRIPTION_TTL_S = 180.0
"""Agents repeat their request each minute. One without a request for this long has ended, or another replica serves
it."""
DEBOUNCE_S = 0.5
"""Changes within this time are published together."""
POLL_INTERVAL_S = 5.0


class NodePodsPublisher:
    """Publishes its `NodePods` to each requesting agent: over the bus, and retained by the MQTT broker if one is
    configured.
    """

    def __init__(self, runtime: Runtime, mqtt: MqttSession | None) -> None:
        self._runtime = runtime
        self._mqtt = mqtt
        self._requested_s: dict[str, float] = {}
        self._published: dict[str, tuple[int, int]] = {}
        self._new_request = asyncio.Event()

    def request(self, node: str) -> None:
        """Records the request of a node's agent, which is answered even when nothing has changed since the last one."""
        self._requested_s[node] = asyncio.get_running_loop().time()
        self._published.pop(node, None)
        self._new_request.set()

    async def run(self) -> None:
        """Publishes until cancelled."""
        logged = False
        while True:
            try:
                await self._publish()
                logged = False
            except BrokerUnavailable as error:
                if not logged:  # logged once an outage
                    log.warning("agents wait for the pods of their nodes", extra={"why": str(error)})
                logged = True
            # A request of the time of the publication is cleared too; the next poll serves it.
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
