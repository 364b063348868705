"""The agent through Mosquitto, as through any broker that retains messages and keeps sessions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from aiomqtt import Client

from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from services.node_agent.transport.mqtt_transport import MqttTransport
from services.node_agent.transport.outbox import Message, Outbox
from shared.agents import node_pods, node_slo, receipt, subjects
from shared.agents.broker import Broker
from shared.agents.node_pods import NodePods
from shared.agents.node_slo import NodeSlo
from shared.agents.receipt import Receipt
from shared.agents.subjects import ACTION, PODS, REFUSED, REPORT, SLO
from shared.runtime.task_cancellation import cancel_and_wait
from tests.integration.node_agent.transport_ends import NODE
from tests.support.mosquitto import Mosquitto
from tests.support.waiting import until

SECURITY = Path(__file__).parents[3] / "docs" / "security.md"


@asynccontextmanager
async def started(folder: Path, acl: str = "") -> AsyncIterator[Mosquitto]:
    running = Mosquitto(folder / "mosquitto", acl)
    await asyncio.to_thread(running.start)
    try:
        yield running
    finally:
        await asyncio.to_thread(running.stop)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Mosquitto]:
    async with started(tmp_path) as running:
        yield running


class Agent:
    """An agent's connection through the broker; each `start` is another run of it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.outbox = Outbox(1_000_000)
        self.slo_informer = NodeSloInformer(NODE, folder / "state")
        self.pods = NodePodsInformer(NODE, folder / "state")
        self.transport = MqttTransport(NODE, Broker.parse(url), self.outbox, self.slo_informer, self.pods)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self.transport.run())

    async def stop(self) -> None:
        assert self._task is not None
        await cancel_and_wait(self._task)


def ingest(broker: Mosquitto) -> Client:
    where = Broker.parse(broker.url)
    return Client(where.host, where.port, identifier="ingest", clean_session=False, username="ingest")


async def test_reports_of_a_broker_restart_all_arrive(broker: Mosquitto, tmp_path: Path) -> None:
    topic = subjects.topic(NODE, REPORT)
    async with ingest(broker) as client:
        await client.subscribe(topic, qos=1)
    agent = Agent(broker.url, tmp_path)
    agent.start()
    await until(lambda: agent.transport.connected)
    agent.outbox.put(Message(REPORT, 1, b"1"))
    await until(lambda: agent.outbox.sent == 1)
    await asyncio.to_thread(broker.stop)
    for seq in (2, 3):
        agent.outbox.put(Message(REPORT, seq, b"%d" % seq))
    await until(lambda: not agent.transport.connected)
    await asyncio.to_thread(broker.start)
    await until(lambda: agent.outbox.sent == 3)
    received: list[bytes] = []
    async with ingest(broker) as client, asyncio.timeout(60):
        async for message in client.messages:  # messages that the broker kept for a session while it was away
            received.append(bytes(message.payload))
            if set(received) == {b"1", b"2", b"3"}:
                break
    await agent.stop()


async def test_a_node_slo_published_while_the_agent_was_away_arrives_when_it_is_back(
    broker: Mosquitto, tmp_path: Path
) -> None:
    agent = Agent(broker.url, tmp_path)
    agent.start()
    await until(lambda: agent.transport.connected)
    await agent.stop()
    async with ingest(broker) as client:
        await client.publish(subjects.topic(NODE, SLO), node_slo.encode(NodeSlo(NODE, 5, 1)), qos=1, retain=True)
    agent.start()
    await until(lambda: agent.slo_informer.in_force is not None)
    await agent.stop()


async def test_the_rules_of_the_guide_permit_an_agent_its_own_topics_and_no_others(tmp_path: Path) -> None:
    rules = [line.strip() for line in SECURITY.read_text().splitlines() if line.startswith("    pattern ")]
    received: list[bytes] = []
    async with started(tmp_path, "\n".join([*rules, "user ingest", "topic readwrite koord/node/#", ""])) as broker:
        agent = Agent(broker.url.replace("//", f"//{quote(subjects.token(NODE))}@"), tmp_path)
        agent.outbox.put(Message(REPORT, 1, b"own report"))
        agent.outbox.put(Message(ACTION, 1, b"own action"))
        where = Broker.parse(broker.url)
        async with (
            ingest(broker) as reports,
            Client(where.host, where.port, identifier="another", username="another") as other,
        ):
            for kind in (REPORT, ACTION):
                await reports.subscribe(subjects.topic(NODE, kind), qos=1)
                await other.publish(subjects.topic(NODE, kind), b"forged", qos=1)
            await other.subscribe("#", qos=1)
            agent.start()
            await reports.publish(subjects.topic(NODE, SLO), node_slo.encode(NodeSlo(NODE, 5, 1)), qos=1, retain=True)
            await reports.publish(
                subjects.topic(NODE, PODS), node_pods.encode(NodePods(NODE, 5, 1)), qos=1, retain=True
            )
            await until(lambda: agent.slo_informer.in_force is not None and agent.pods.in_force is not None)
            refusal = Receipt("report", "boot", 1, "its clock is an hour ahead")
            await reports.publish(subjects.topic(NODE, REFUSED), receipt.encode(refusal), qos=1)
            await until(lambda: agent.outbox.refused == 1)
            async for message in reports.messages:
                received.append(bytes(message.payload))
                if len(received) == 2:
                    break
            assert len(other.messages) == 0
        await agent.stop()
    assert sorted(received) == [b"own action", b"own report"]
