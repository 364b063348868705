"""The agent through Mosquitto, as through any broker that keeps sessions."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiomqtt import Client

from services.node_agent.outbox import Message, Outbox
from services.node_agent.over_mqtt import OverMqtt
from services.node_agent.slo import SloKeeper
from shared.agents import answer, slo, subjects
from shared.agents.answer import Answer
from shared.agents.broker import Broker
from shared.agents.slo import NodeSlo
from shared.agents.subjects import REFUSED, REPORT, SLO
from shared.tasks import end
from tests.integration.node_agent.test_carriers import NODE, until
from tests.mosquitto import Mosquitto


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Mosquitto]:
    running = Mosquitto(tmp_path / "mosquitto")
    await asyncio.to_thread(running.start)
    yield running
    await asyncio.to_thread(running.stop)


class Agent:
    """What an agent carries through the broker; each `start` is another run of it."""

    def __init__(self, broker: Mosquitto, folder: Path) -> None:
        self.outbox = Outbox(1_000_000)
        self.keeper = SloKeeper(NODE, folder / "state")
        self.carrier = OverMqtt(NODE, Broker.parse(broker.url), self.outbox, self.keeper)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self.carrier.run())

    async def stop(self) -> None:
        assert self._task is not None
        await end(self._task)


def ingest(broker: Mosquitto) -> Client:
    where = Broker.parse(broker.url)
    return Client(where.host, where.port, identifier="ingest", clean_session=False)


async def test_reports_of_a_broker_restart_all_arrive(broker: Mosquitto, tmp_path: Path) -> None:
    topic = subjects.topic(NODE, REPORT)
    async with ingest(broker) as client:
        await client.subscribe(topic, qos=1)
    agent = Agent(broker, tmp_path)
    agent.start()
    await until(lambda: agent.carrier.connected)
    agent.outbox.put(Message(REPORT, 1, b"1"))
    await until(lambda: agent.outbox.sent == 1)
    await asyncio.to_thread(broker.stop)
    for seq in (2, 3):
        agent.outbox.put(Message(REPORT, seq, b"%d" % seq))
    await until(lambda: not agent.carrier.connected)
    await asyncio.to_thread(broker.start)
    await until(lambda: agent.outbox.sent == 3)
    heard: list[bytes] = []
    async with ingest(broker) as client, asyncio.timeout(60):
        async for message in client.messages:  # what the broker kept for a session that was away
            heard.append(bytes(message.payload))
            if set(heard) == {b"1", b"2", b"3"}:
                break
    await agent.stop()


async def test_what_was_said_while_the_agent_was_away_is_heard_when_it_is_back(
    broker: Mosquitto, tmp_path: Path
) -> None:
    agent = Agent(broker, tmp_path)
    agent.start()
    await until(lambda: agent.carrier.connected)
    await agent.stop()
    async with ingest(broker) as client:
        said = Answer("report", "boot", 7, "its clock is an hour ahead")
        await client.publish(subjects.topic(NODE, REFUSED), answer.encode(said), qos=1)
        await client.publish(subjects.topic(NODE, SLO), slo.encode(NodeSlo(NODE, 5, 1)), qos=1, retain=True)
    agent.start()
    await until(lambda: agent.outbox.refused == 1 and agent.keeper.in_force is not None)
    await agent.stop()
