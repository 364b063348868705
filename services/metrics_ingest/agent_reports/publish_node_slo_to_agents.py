"""Publishes NodeSLOs to agents: retained by the MQTT broker, and kept in a JetStream stream for agents on NATS."""

import asyncio
import logging
from collections.abc import Callable

from services.metrics_ingest.agent_reports.metrics_ingest_state import NodeSloRecord, ReportIngestState
from shared.agents import node_slo, subjects
from shared.bus.jetstream import Outgoing, StreamConfig, StreamRefused, Streams, StreamsUnreachable
from shared.ingest.mqtt_session import BrokerUnavailable, MqttSession
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 5.0
BATCH_SIZE = 200

STREAM = StreamConfig(
    name=subjects.SLO_STREAM,
    subjects=(subjects.every_subject(subjects.SLO),),
    description="the newest NodeSLO of each node, for node agents",
    max_msgs_per_subject=1,
)


class NodeSloPublisher:
    """Publishes each NodeSLO that has changed since it was last published. After a start these are all.

    Agents skip known positions.
    """

    def __init__(self, runtime: Runtime, concerns: Callable[[str], bool], mqtt: MqttSession | None) -> None:
        self._runtime = runtime
        self._concerns = concerns
        self._mqtt = mqtt
        self._streams = Streams(runtime.bus)
        self._made = False
        self._stored: dict[str, NodeSloRecord] = {}
        self._retained: dict[str, NodeSloRecord] = {}

    async def run(self) -> None:
        """Publishes until the process drains, or until cancelled."""
        logged = False
        while not self._runtime.draining.is_set():  # once draining, `changed` returns at once
            try:
                await self._store()
                await self._retain()
                logged = False
            except (StreamsUnreachable, StreamRefused, BrokerUnavailable) as error:
                if not logged:  # logged once an outage
                    log.warning("NodeSLOs wait to be published", extra={"why": str(error)})
                logged = True
                await asyncio.sleep(POLL_INTERVAL_S)
            await self._runtime.changed(POLL_INTERVAL_S)

    async def _store(self) -> None:
        due = self._due(self._stored)
        if not self._made and (due or self._state.slos):
            await self._streams.ensure(STREAM)
            self._made = True
        for start in range(0, len(due), BATCH_SIZE):
            some = due[start : start + BATCH_SIZE]
            await self._streams.publish_all(
                Outgoing(subjects.subject(node, subjects.SLO), _message(node, record)) for node, record in some
            )
            self._stored.update(some)  # only after the stream's acknowledgement: an outage repeats this batch

    async def _retain(self) -> None:
        if self._mqtt is None:
            return
        for node, record in self._due(self._retained):
            await self._mqtt.publish(subjects.topic(node, subjects.SLO), _message(node, record), retain=True)
            self._retained[node] = record

    @property
    def _state(self) -> ReportIngestState:
        state: ReportIngestState = self._runtime.state
        return state

    def _due(self, published: dict[str, NodeSloRecord]) -> list[tuple[str, NodeSloRecord]]:
        return [
            (node, record)
            for node, record in self._state.slos.items()
            if published.get(node) != record and self._concerns(node)
        ]


def _message(node: str, record: NodeSloRecord) -> bytes:
    return node_slo.encode(node_slo.NodeSlo(node, record.epoch, record.seq, record.spec, record.memory_policy))
