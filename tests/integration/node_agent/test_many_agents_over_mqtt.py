"""Every agent receives its NodeSLO, with more agents than a NATS server has consumers for a stream."""

import asyncio
from pathlib import Path

import pytest
from aiomqtt import Client

from cli.embedded import EmbeddedNats
from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.transport import mqtt_transport
from services.node_agent.transport.mqtt_transport import MqttTransport
from services.node_agent.transport.outbox import Message, Outbox
from shared.agents import node_slo, subjects
from shared.agents.broker import Broker
from shared.agents.node_slo import NodeSlo
from shared.runtime.task_cancellation import cancel_and_wait
from tests.support.waiting import until

AGENTS = 400
"""Of three topics each; a stream has a thousand consumers."""
AT_ONCE = 20


async def test_each_agent_of_a_fleet_receives_its_node_slo(
    server: EmbeddedNats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_transport, "POLL_INTERVAL_S", 2.0)
    broker = Broker.parse(server.mqtt_url)
    slo_informers = [NodeSloInformer(f"rack.{number}", tmp_path / str(number)) for number in range(AGENTS)]
    outboxes = [Outbox(1_000_000) for _ in slo_informers]
    transports = [
        MqttTransport(f"rack.{number}", broker, outbox, slo_informer)
        for number, (outbox, slo_informer) in enumerate(zip(outboxes, slo_informers, strict=True))
    ]
    running: list[asyncio.Task[None]] = []
    async with Client(broker.host, broker.port, identifier="ingest") as ingest:

        async def publish(number: int) -> None:
            topic, message = subjects.topic(f"rack.{number}", subjects.SLO), NodeSlo(f"rack.{number}", 5, 1)
            await ingest.publish(topic, node_slo.encode(message), qos=1, retain=True)

        for first in range(0, AGENTS, AT_ONCE):
            some = range(first, first + AT_ONCE)
            running += [asyncio.create_task(transports[number].run()) for number in some]
            outboxes[first].put(Message(subjects.REPORT, 1, b"1"))
            await asyncio.gather(*map(publish, some))
    await until(
        lambda: [number for number, slo_informer in enumerate(slo_informers) if slo_informer.in_force is None],
        "an SLO for each agent",
        holds=lambda missing: not missing,
    )
    await until(lambda: sum(outbox.sent for outbox in outboxes) == AGENTS // AT_ONCE)
    assert all(transport.connected for transport in transports)
    await cancel_and_wait(*running)
