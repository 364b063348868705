"""Messages in an outbox reach ingest, and the NodeSLO reaches its informer, through a server that stops and
restarts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.embedded import EmbeddedNats
from services.node_agent.states_informer.node_slo import NodeSloInformer
from shared.agents import node_slo, receipt, subjects
from shared.agents.broker import Broker
from shared.agents.node_slo import NodeSlo
from shared.agents.receipt import Receipt
from shared.agents.subjects import ACTION, REFUSED, REPORT, SLO
from shared.bus import Bus
from shared.bus.jetstream import Streams
from tests.integration.node_agent.transport_ends import NODE, STREAM, AgentEnd, IngestEnd
from tests.support.waiting import until


@pytest.fixture
async def ingest(server: EmbeddedNats) -> AsyncIterator[IngestEnd]:
    bus = Bus(server.url, name="ingest")
    await bus.start()
    yield IngestEnd(bus)
    await bus.close()


@pytest.fixture(params=["nats", "mqtt"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def side(transport: str, server: EmbeddedNats, tmp_path: Path) -> AgentEnd:
    return AgentEnd(transport, server, tmp_path)


async def test_waiting_messages_arrive_in_order(transport: str, side: AgentEnd, ingest: IngestEnd) -> None:
    await ingest.listen(transport)
    side.put(REPORT, 1, 2, 3)
    side.put(ACTION, 1)
    async with side.running():
        await until(lambda: len(side.outbox) == 0)
        assert ingest.received == {REPORT: [1, 2, 3], ACTION: [1]}
        assert side.outbox.sent == 4
        assert side.transport.connected


async def test_nothing_is_lost_while_the_server_is_away(
    transport: str, side: AgentEnd, ingest: IngestEnd, server: EmbeddedNats
) -> None:
    await ingest.listen(transport)
    async with side.running():
        side.put(REPORT, 1)
        await until(lambda: ingest.received[REPORT] == [1])
        await server.kill()
        side.put(REPORT, 2, 3, 4)
        await until(lambda: not side.transport.connected)
        assert len(side.outbox) >= 3
        await server.start()
        await until(lambda: len(side.outbox) == 0)
    if transport == "mqtt":  # ingest's own connection may come back later than the broker accepts reports
        assert side.outbox.sent == 4
    else:
        assert sorted(set(ingest.received[REPORT])) == [1, 2, 3, 4]


async def test_an_agent_that_starts_before_the_server_finds_it(
    transport: str, side: AgentEnd, ingest: IngestEnd, server: EmbeddedNats
) -> None:
    await server.stop()
    side.put(REPORT, 1)
    async with side.running():
        await asyncio.sleep(0)
        assert not side.transport.connected
        await server.start()
        await ingest.listen(transport)
        await until(lambda: side.outbox.sent == 1)


@pytest.mark.parametrize("transport", ["nats"])  # a broker accepts reports without a subscriber
async def test_reports_wait_for_an_ingest_that_starts_later(side: AgentEnd, ingest: IngestEnd, transport: str) -> None:
    side.put(REPORT, 1, 2)
    async with side.running():
        await until(lambda: not side.transport.connected)
        await ingest.listen(transport)
        await until(lambda: len(side.outbox) == 0)
    assert ingest.received[REPORT] == [1, 2]


async def test_a_rejection_is_counted_and_later_messages_go_on(
    transport: str, side: AgentEnd, ingest: IngestEnd, caplog: pytest.LogCaptureFixture
) -> None:
    ingest.refuses[2] = "names another node than its topic"
    await ingest.listen(transport)
    side.put(REPORT, 1, 2, 3)
    async with side.running():
        await until(lambda: len(side.outbox) == 0)
        if transport == "mqtt":
            rejection = Receipt("report", "boot", 2, ingest.refuses[2])
            await ingest.bus.publish(subjects.subject(NODE, REFUSED), receipt.encode(rejection))
        await until(lambda: side.outbox.refused == 1)
    assert ingest.received[REPORT] == [1, 2, 3]
    assert caplog.text.count("ingest rejects messages of this agent") == 1


async def _publish_slo(transport: str, ingest: IngestEnd, server: EmbeddedNats, message: NodeSlo) -> None:
    """Publishes a NodeSLO as ingest does: kept in the stream, or retained by the broker."""
    data = node_slo.encode(message)
    if transport == "nats":
        streams = Streams(ingest.bus)
        await streams.ensure(STREAM)
        await streams.publish(subjects.subject(NODE, SLO), data)
        return
    from aiomqtt import Client

    broker = Broker.parse(server.mqtt_url)
    async with Client(broker.host, broker.port, identifier="ingest") as client:
        await client.publish(subjects.topic(NODE, SLO), data, qos=1, retain=True)


def threshold(percent: int) -> dict[str, object]:
    return {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": percent}}


async def test_the_newest_node_slo_is_in_force_before_and_after_the_connection(
    transport: str, side: AgentEnd, ingest: IngestEnd, server: EmbeddedNats, tmp_path: Path
) -> None:
    await _publish_slo(transport, ingest, server, NodeSlo(NODE, 5, 1, threshold(60)))
    async with side.running():
        await until(lambda: side.slo_informer.in_force is not None)
        await _publish_slo(transport, ingest, server, NodeSlo(NODE, 5, 3, threshold(70)))
        await until(lambda: side.slo_informer.in_force is not None and side.slo_informer.in_force.seq == 3)
        await _publish_slo(transport, ingest, server, NodeSlo(NODE, 5, 2, threshold(10)))
        await _publish_slo(transport, ingest, server, NodeSlo(NODE, 5, 4, threshold(400)))
        await until(lambda: side.slo_informer.refused == 1)
        assert side.slo_informer.in_force is not None
        assert side.slo_informer.in_force.spec == threshold(70)
    later = NodeSloInformer(NODE, tmp_path / "state")  # another run of the agent, without any bus
    later.load()
    assert later.in_force == side.slo_informer.in_force


async def test_a_node_slo_published_while_the_server_was_away_arrives_afterwards(
    transport: str, side: AgentEnd, ingest: IngestEnd, server: EmbeddedNats
) -> None:
    await _publish_slo(transport, ingest, server, NodeSlo(NODE, 5, 1, threshold(60)))
    async with side.running():
        await until(lambda: side.slo_informer.in_force is not None)
        await server.restart()
        await until(lambda: ingest.bus.connected)
        await _publish_slo(transport, ingest, server, NodeSlo(NODE, 5, 2, threshold(70)))
        await until(lambda: side.slo_informer.in_force is not None and side.slo_informer.in_force.seq == 2)
