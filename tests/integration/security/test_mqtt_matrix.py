"""Every login that may use MQTT tries every topic; the others are rejected.

NATS checks a topic as the subject it maps to.
"""

import asyncio
from urllib.parse import urlsplit

import aiomqtt
import pytest
from nats.aio.msg import Msg

from tests.integration.security.conftest import Secured, members, mqtt_client
from tests.integration.security.expected_permissions import KINDS, LOGINS, TOKENS, Tried
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITES = {"metrics-ingest": "metrics", "action-ingest": "nodes", "device-discovery": "devices"}
RECEIVES = {"metrics-ingest": "report", "action-ingest": "action", "device-discovery": "inventory"}

MQTT_LOGINS = (*TOKENS.values(), *(one.name for one in members(tuple(WRITES))))
REFUSED = 128

TOPICS = (
    *(f"koord/node/{token}/{kind}" for token in (*TOKENS.values(), "other") for kind in KINDS),
    *(f"koord/{kind}/{context}" for kind in ("log", "head") for context in ("cluster", "metrics-0", "nodes-1", "devices-0")),
    "koord/event/cluster/x/y", "koord/simulator/create", "_INBOX/node-a/x", "_INBOX/operator/x", "_INBOX/koord/scheduler/x",
    "$JS/API/STREAM/DELETE/KOORD_NODE_SLO", "$JS/API/STREAM/INFO/KOORD_NODE_SLO", "$SYS/REQ/SERVER/PING",
    "$MQTT/msgs/koord/node/node-a/report", "$MQTT/sub/x", "anything",
)  # fmt: skip
FILTERS = (
    *TOPICS,
    "#",
    "+",
    "koord/#",
    "koord/node/#",
    "koord/node/+/report",
    "koord/node/+/inventory",
    "koord/node/+/slo",
    "koord/node/node-a/#",
    "$MQTT/#",
    "_INBOX/#",
)


def may_publish(login: str) -> set[str]:
    if login in TOKENS.values():
        return {f"koord/node/{login}/{kind}" for kind in ("report", "action", "inventory")} | (
            {"_INBOX/node-a/x"} if login == "node-a" else set()
        )
    service, shard = login.rsplit("-", 1)
    own = {f"koord/{kind}/{WRITES[service]}-{shard}" for kind in ("log", "head")}
    reported = {"refused", "slo"} if login.startswith("metrics-") else {"refused"}
    found = own | {f"koord/node/{token}/{kind}" for token in (*TOKENS.values(), "other") for kind in reported}
    if login.startswith("metrics-"):
        found |= {"$JS/API/STREAM/DELETE/KOORD_NODE_SLO", "$JS/API/STREAM/INFO/KOORD_NODE_SLO"}
    return found & set(TOPICS)


def may_subscribe(login: str) -> set[str]:
    if login in TOKENS.values():
        return {f"koord/node/{login}/refused", f"koord/node/{login}/slo"} | (
            {"_INBOX/node-a/x"} if login == "node-a" else set()
        )
    kind = RECEIVES[login.rsplit("-", 1)[0]]
    found = {f"koord/node/{token}/{kind}" for token in (*TOKENS.values(), "other")} | {f"koord/node/+/{kind}"}
    (one,) = [one for one in members() if one.name == login]
    return (found | {f"koord/{kind}/{context}" for kind in ("log", "head") for context in one.follows}) & set(FILTERS)


@pytest.mark.parametrize("login", MQTT_LOGINS)
async def test_a_login_may_use_the_topics_of_its_manifest_and_no_other(secured: Secured, login: str) -> None:
    received: set[str] = set()
    spy = await Tried().meet(secured.spy("FIELD"))

    async def receive(message: Msg) -> None:
        if message.data == login.encode():
            received.add(message.subject.replace(".", "/"))

    await spy.subscribe(">", cb=receive)
    await spy.flush()
    async with mqtt_client(secured, login) as mqtt:
        granted = [int((await mqtt.subscribe(topic, qos=1))[0].value) for topic in FILTERS]  # type: ignore[union-attr]
        for topic in TOPICS:
            try:
                async with asyncio.timeout(2):
                    await mqtt.publish(topic, login.encode(), qos=1)
            except TimeoutError:
                pytest.fail(f"{topic} is neither accepted nor dropped")
    await spy.publish("spy.done", login.encode())
    await until(lambda: received, holds=lambda received: "spy/done" in received)
    await spy.close()
    expected = may_subscribe(login)
    found = {topic for topic, code in zip(FILTERS, granted, strict=True) if code != REFUSED}
    assert found == expected
    inside = {
        topic for topic in received if not topic.startswith(("$MQTT/", "$JS/EVENT"))
    }  # topics that the server uses for its sessions
    assert inside - {"spy/done"} == may_publish(login)


@pytest.mark.parametrize("login", [one for one in LOGINS if one not in MQTT_LOGINS])
async def test_a_login_that_does_not_use_mqtt_is_rejected(secured: Secured, login: str) -> None:
    assert "KOORD_MQTT" not in secured.env(login)
    nats, mqtt = urlsplit(secured.env(login)["KOORD_NATS"]), urlsplit(secured.env("node-a")["KOORD_MQTT"])
    with pytest.raises(aiomqtt.MqttError, match=r"[Nn]ot authori[sz]ed"):
        async with aiomqtt.Client(mqtt.hostname or "", mqtt.port or 0, username=nats.username, password=nats.password):
            pass


@pytest.mark.parametrize(
    ("username", "password"), [(None, None), ("node-a", "wrong"), ("node-a", None), ("nobody", "x")]
)
async def test_a_missing_login_and_a_wrong_password_are_rejected_by_mqtt(
    secured: Secured, username: str | None, password: str | None
) -> None:
    mqtt = urlsplit(secured.env("node-a")["KOORD_MQTT"])
    with pytest.raises(aiomqtt.MqttError):
        async with aiomqtt.Client(mqtt.hostname or "", mqtt.port or 0, username=username, password=password):
            pass


async def test_a_node_that_takes_the_client_id_of_another_receives_none_of_its_messages(secured: Secured) -> None:
    """A session is found by the client's id alone: a client that takes it over must get neither its subscriptions nor
    its pending messages.
    """
    session = {"identifier": "koord-node-agent-node-a", "clean_session": False}
    async with mqtt_client(secured, "node-a", **session) as victim:
        await victim.subscribe("koord/node/node-a/slo", qos=1)
    async with mqtt_client(secured, "metrics-ingest-0") as ingest:
        await ingest.publish("koord/node/node-a/slo", b"while it was away", qos=1)
    async with mqtt_client(secured, "rack%2E1", **session) as thief:
        await thief.subscribe("koord/node/rack%2E1/slo", qos=1)
        async with mqtt_client(secured, "metrics-ingest-0") as ingest:
            await ingest.publish("koord/node/node-a/slo", b"secret", qos=1)
            await ingest.publish("koord/node/rack%2E1/slo", b"own", qos=1)
        got: list[tuple[str, bytes]] = []
        async with asyncio.timeout(20):
            async for message in thief.messages:
                got.append((message.topic.value, bytes(message.payload)))
                if message.payload == b"own":
                    break
    assert got == [("koord/node/rack%2E1/slo", b"own")]
