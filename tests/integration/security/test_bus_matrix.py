"""Every login tries every subject of the bus: those of its manifest are permitted, and no others.

The expected permissions are derived here from the meaning of the manifests, and not with the code that creates the
permissions.
"""

import asyncio
import json
from collections.abc import Mapping

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.integration.security.conftest import ACCOUNTS, NODES, Secured, members
from tests.integration.security.expected_permissions import (
    CONTEXTS,
    LOGINS,
    TOKENS,
    Tried,
    expected,
    may,
)
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("login", LOGINS)
async def test_a_login_may_use_the_subjects_of_its_manifest_and_no_other(secured: Secured, login: str) -> None:
    found, desired = await may(secured.env(login)["KOORD_NATS"]), expected(login)
    assert found.publish - desired.publish == set(), "it may publish on an undeclared subject"
    assert found.subscribe - desired.subscribe == set(), "it may subscribe to an undeclared subject"
    assert desired.publish - found.publish == set(), "it may not publish on a declared subject"
    assert desired.subscribe - found.subscribe == set(), "it may not subscribe to a declared subject"


async def test_the_scheduler_publishes_and_subscribes_to_these() -> None:
    """Checks one row of the matrix in full: an error in the derivation of the expectations would show here."""
    assert {one for one in expected("scheduler").publish if one.startswith("koord.")} == {
        "koord.log.scheduling",
        "koord.head.scheduling",
    }
    assert "koord.log.cluster" in expected("scheduler").subscribe
    assert expected("node-a").publish == {
        "koord.node.node-a.report",
        "koord.node.node-a.action",
        "koord.node.node-a.inventory",
        "_INBOX.node-a.x",
        "$JS.API.DIRECT.GET.KOORD_NODE_SLO.koord.node.node-a.slo",
    }
    assert not {one for one in expected("auditor").subscribe if one.startswith(("koord.log", "koord.node"))}


@pytest.mark.parametrize(
    "userinfo", ["", "koord.scheduler:wrong@", "koord.scheduler:@", "nobody:x@", "node-a:wrong@", "operator:operator@"]
)
async def test_a_client_without_a_login_or_with_a_wrong_password_is_rejected(secured: Secured, userinfo: str) -> None:
    place = secured.bus
    reported: list[str] = []

    async def on_error(error: Exception) -> None:
        reported.append(str(error).lower())

    client = Client()
    with pytest.raises((nats.errors.Error, OSError)):
        await client.connect(f"nats://{userinfo}{place}", allow_reconnect=False, connect_timeout=2, error_cb=on_error)
    client._transport._io_writer.transport.abort()  # type: ignore[union-attr]
    assert any("authorization violation" in text for text in reported)


async def test_an_announcement_reaches_only_the_followers_of_the_log(secured: Secured) -> None:
    clients = {login: await Tried().meet(secured.env(login)["KOORD_NATS"]) for login in LOGINS}
    received: dict[str, set[str]] = {login: set() for login in LOGINS}
    for login, client in clients.items():

        async def receive(message: Msg, login: str = login) -> None:
            received[login].add(message.data.decode())

        for context in CONTEXTS:
            await client.subscribe(f"koord.log.{context}", cb=receive)
        await client.flush()
    for one in members():
        await clients[one.name].publish(f"koord.log.{one.writes}", f"{one.name} of {one.writes}".encode())
        await clients[one.name].flush()
    desired = {
        login: set() if login in {"auditor", *TOKENS.values()} else {f"{one.name} of {one.writes}" for one in members()}
        for login in LOGINS
    }
    for one in members():
        desired[one.name] = {f"{other.name} of {other.writes}" for other in members() if other.writes in one.follows}
    await until(lambda: received, holds=lambda received: received == desired)
    for client in clients.values():
        await client.close()


async def test_a_response_never_goes_to_a_subject_that_the_requester_chose(secured: Secured) -> None:
    """The bus lets a service respond on any reply subject, so a service responds to inboxes alone, and no node can
    publish through it.
    """
    from shared.bus import Bus

    ingest = Bus(secured.env("metrics-ingest-0")["KOORD_NATS"], name="ingest")
    await ingest.start()
    requested: list[bytes] = []

    async def attend(question: object) -> None:
        requested.append(question.data)  # type: ignore[attr-defined]
        await question.respond(b"accepted")  # type: ignore[attr-defined]

    await ingest.handle("koord.node.*.report", attend)
    received: list[bytes] = []
    spies = [await Tried().meet(secured.spy(account)) for account in ACCOUNTS]

    async def receive(message: Msg) -> None:
        received.append(message.data)

    for spy in spies:
        await spy.subscribe("koord.log.cluster", cb=receive)
        await spy.flush()
    agent = await Tried().meet(secured.env("node-a")["KOORD_NATS"])
    await agent.publish("koord.node.node-a.report", b"forged", reply="koord.log.cluster")
    await agent.flush()
    answer = await agent.request("koord.node.node-a.report", b"true", timeout=10)
    assert answer.data == b"accepted"
    assert (requested, received) == ([b"true"], [])
    await agent.close()
    for spy in spies:
        await spy.close()
    await ingest.close()


async def api(client: Client, what: str, about: Mapping[str, object]) -> dict[str, object]:
    """Sends a request to JetStream."""
    answer = await client.request(f"$JS.API.{what}", json.dumps(about).encode(), timeout=10)
    found: dict[str, object] = json.loads(answer.data)
    return found


async def test_a_stream_stores_and_republishes_nothing_that_another_account_announces(secured: Secured) -> None:
    """JetStream lets the creator of a stream choose its subjects and where they are republished, and the creator of a
    consumer its delivery subject.
    """
    received: list[bytes] = []

    async def receive(message: Msg) -> None:
        received.append(message.data)

    scheduler = await Tried().meet(secured.env("scheduler")["KOORD_NATS"])
    for subject in ("koord.log.cluster", "koord.head.cluster"):
        await scheduler.subscribe(subject, cb=receive)
    await scheduler.flush()
    for login, stream in (("audit", "KOORD_EVENTS_CLUSTER"), ("metrics-ingest-0", "KOORD_NODE_SLO")):
        maker = await Tried().meet(secured.env(login)["KOORD_NATS"])
        subject = "koord.event.cluster.>" if login == "audit" else "koord.node.*.slo"
        reported = subject.replace("*", "x").replace(">", "x")
        config = {
            "name": stream,
            "subjects": [subject, "koord.simulator.>"],
            "republish": {"src": reported, "dest": "koord.log.cluster"},
        }
        assert "error" not in await api(maker, f"STREAM.CREATE.{stream}", config)
        await maker.publish(reported, b"forged")
        await maker.settle()
        await maker.close()
    auditor = await Tried().meet(secured.env("auditor")["KOORD_NATS"])
    pushed = {
        "durable_name": "mine",
        "deliver_subject": "koord.head.cluster",
        "ack_policy": "none",
        "deliver_policy": "all",
    }
    about = {"stream_name": "KOORD_EVENTS_CLUSTER", "config": {"name": "mine", **pushed}}
    assert "error" not in await api(auditor, "CONSUMER.CREATE.KOORD_EVENTS_CLUSTER.mine", about)
    operator = await Tried().meet(secured.env("operator")["KOORD_NATS"])
    with pytest.raises(nats.errors.NoRespondersError):
        await operator.request("koord.simulator.get", b"a question", timeout=10)
    seen = await api(auditor, "STREAM.INFO.KOORD_EVENTS_CLUSTER", {})
    assert seen["state"]["messages"] == 1, "the event, and not the request"  # type: ignore[index]
    gateway = await Tried().meet(secured.env("gateway")["KOORD_NATS"])
    await gateway.publish("koord.log.cluster", b"told")
    await until(lambda: received)
    assert received == [b"told"]
    for client in (scheduler, auditor, operator, gateway):
        await client.close()


async def test_a_request_crosses_accounts_to_the_service_that_serves_it(secured: Secured) -> None:
    from shared.bus import Bus

    audit, operator = (Bus(secured.env(login)["KOORD_NATS"], name=login) for login in ("audit", "operator"))
    await audit.start()
    await operator.start()

    async def answer(subject: str, data: bytes) -> bytes:
        return subject.encode() + data

    await audit.respond_on("koord.log.read.*", answer)
    assert await operator.request("koord.log.read.cluster", b"?", deadline_s=20) == b"koord.log.read.cluster?"
    await audit.close()
    await operator.close()


async def test_a_request_or_a_subject_that_is_not_permitted_is_an_error_at_once_and_logged(secured: Secured) -> None:
    from shared.bus import Bus, NotPermitted

    bus = Bus(secured.env("scheduler")["KOORD_NATS"], name="scheduler")
    await bus.start()
    with pytest.raises(NotPermitted, match=r"koord\.scheduler publish on koord\.simulator\.create"):
        async with asyncio.timeout(10):
            await bus.request("koord.simulator.create", b"", deadline_s=60)
    await bus.subscribe("koord.node.node-a.slo", lambda _data: None)
    await until(lambda: bus.violations, holds=lambda count: count >= 2)
    assert bus.refused == "koord.scheduler may not subscribe to koord.node.node-a.slo"
    assert bus.connected
    await bus.close()
    stranger = Bus(secured.env("scheduler")["KOORD_NATS"].replace("koord.scheduler:", "koord.scheduler:not"), name="x")
    await stranger.start()
    with pytest.raises(NotPermitted, match=r"the login 'koord\.scheduler' is refused"):
        await stranger.request("koord.simulator.create", b"", deadline_s=60)
    await stranger.close()


async def test_the_nodes_of_this_test_have_logins() -> None:
    assert set(NODES) == set(TOKENS)
