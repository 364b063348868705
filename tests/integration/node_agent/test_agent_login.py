"""The agent with the login of `koord credentials node`, on a server that restricts it to the rights of a node."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from cli.credentials.nats_config import users
from cli.credentials.permissions import node
from cli.credentials.secrets_file import Secret, new_secret
from cli.embedded import EmbeddedNats
from services.node_agent.transport.mqtt_transport import MqttTransport
from services.node_agent.transport.nats_transport import NatsTransport
from shared.agents import node_slo, subjects
from shared.agents.broker import Broker
from shared.agents.node_slo import NodeSlo
from shared.agents.subjects import ACTION, REPORT, SLO
from shared.bus import Bus, NotPermitted
from shared.bus.jetstream import Streams
from tests.integration.node_agent.transport_ends import NODE, STREAM, AgentEnd, IngestEnd
from tests.support.waiting import until

OTHER = "ip-10-0-0-2.internal"
INGEST = "    { user: ingest, password: ingest }\n"


class Locked:
    """A server with a login for each of two nodes, and one with all rights."""

    def __init__(self, folder: Path) -> None:
        logins = {name: node(subjects.token(name)) for name in (NODE, OTHER)}
        self.secrets: dict[str, Secret] = {login.name: new_secret() for login in logins.values()}
        self.server = EmbeddedNats(folder)
        text = users(logins.values(), self.secrets, nkeys=False)
        before, account, field = text.partition("  FIELD: {")  # the part of the bus that nodes and ingest use
        self.server.users = before + account + field.replace("users: [\n", f"users: [\n{INGEST}", 1)

    def url(self, scheme: str, name: str = NODE) -> str:
        token = subjects.token(name)
        login = f"{quote(token, safe='')}:{quote(self.secrets[token].password, safe='')}"
        port = self.server.port if scheme == "nats" else self.server.mqtt_port
        return f"{scheme}://{login}@127.0.0.1:{port}"


@pytest.fixture
async def locked(tmp_path: Path) -> AsyncIterator[Locked]:
    made = Locked(tmp_path / "nats")
    async with made.server:
        yield made


@pytest.fixture
async def ingest(locked: Locked) -> AsyncIterator[IngestEnd]:
    bus = Bus(f"nats://ingest:ingest@127.0.0.1:{locked.server.port}", name="ingest")
    await bus.start()
    yield IngestEnd(bus)
    await bus.close()


@pytest.mark.parametrize("transport", ["nats", "mqtt"])
async def test_its_own_login_is_enough_for_all_it_does(
    transport: str, locked: Locked, ingest: IngestEnd, tmp_path: Path
) -> None:
    await ingest.listen(transport)
    streams = Streams(ingest.bus)
    await streams.ensure(STREAM)
    await streams.publish(subjects.subject(NODE, SLO), node_slo.encode(NodeSlo(NODE, 5, 1)))
    side = AgentEnd(transport, locked.server, tmp_path)
    side.transport = (
        NatsTransport(NODE, Bus(locked.url("nats"), name="agent"), side.outbox, side.slo_informer)
        if transport == "nats"
        else MqttTransport(NODE, Broker.parse(locked.url("mqtt")), side.outbox, side.slo_informer)
    )
    side.put(REPORT, 1, 2)
    side.put(ACTION, 1)
    async with side.running():
        await until(lambda: len(side.outbox) == 0 and ingest.received == {REPORT: [1, 2], ACTION: [1]})
        if transport == "nats":
            await until(lambda: side.slo_informer.in_force is not None)
        await ingest.bus.publish(subjects.subject(NODE, SLO), node_slo.encode(NodeSlo(NODE, 5, 2)))
        await until(lambda: side.slo_informer.in_force is not None and side.slo_informer.in_force.seq == 2)


async def test_another_nodes_report_and_node_slo_are_out_of_reach(locked: Locked, ingest: IngestEnd) -> None:
    await Streams(ingest.bus).ensure(STREAM)
    bus = Bus(locked.url("nats"), name="agent")
    await bus.start()
    for subject in (subjects.subject(OTHER, REPORT), subjects.slo_question(OTHER)):
        with pytest.raises(NotPermitted, match="does not let ip-10-0-0-1%2Einternal publish"):
            await bus.request(subject, b"", deadline_s=5)
    await bus.close()


@pytest.mark.parametrize("transport", ["nats", "mqtt"])
async def test_with_another_nodes_login_nothing_is_accepted_and_everything_is_kept(
    transport: str, locked: Locked, ingest: IngestEnd, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await ingest.listen(transport)
    side = AgentEnd(transport, locked.server, tmp_path)
    side.transport = (
        NatsTransport(NODE, Bus(locked.url("nats", OTHER), name="agent"), side.outbox, side.slo_informer)
        if transport == "nats"
        else MqttTransport(NODE, Broker.parse(locked.url("mqtt", OTHER)), side.outbox, side.slo_informer)
    )
    side.put(REPORT, 1)
    async with side.running():
        await until(lambda: "are kept" in caplog.text)
        await asyncio.sleep(0)
    assert ("is not this node's" in caplog.text) == (transport == "mqtt")
    assert ingest.received[REPORT] == []
    assert len(side.outbox) == 1
