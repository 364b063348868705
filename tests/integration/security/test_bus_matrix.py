"""Every login tries every subject of the bus: what its declaration says works, and nothing else does.

What is expected is worked out here from the declarations' meaning; the code that makes the permissions is not asked.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.bus.login import Login
from shared.declared import Declared
from tests.integration.security.conftest import ACCOUNTS, NODES, SHARDS, Secured, members
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONTEXTS = (
    "cluster",
    "scheduling",
    "quota",
    "slo",
    "audit",
    *(f"{kind}-{n}" for kind in ("metrics", "nodes") for n in range(SHARDS)),
)
TOKENS = {"node-a": "node-a", "rack.1": "rack%2E1"}
KINDS = ("report", "deed", "refused", "slo")
EVENT_STREAMS = tuple(f"KOORD_EVENTS_{name.upper().replace('-', '_')}" for name in CONTEXTS)
STREAMS = (*EVENT_STREAMS, "KOORD_NODE_SLO", "SOMEBODY_ELSES", "$MQTT_msgs", "$MQTT_rmsgs", "$MQTT_sess")
STREAM_VERBS = (
    "CREATE",
    "UPDATE",
    "INFO",
    "PURGE",
    "DELETE",
    "MSG.GET",
    "MSG.DELETE",
    "SNAPSHOT",
    "RESTORE",
    "PEER.REMOVE",
)
SLO = "koord.node.{}.slo"
LOGINS = (*(one.name for one in members()), "operator", "auditor", *TOKENS.values())

ASKED = tuple(
    dict.fromkeys(
        subject.replace("*", context)
        for one in members()
        for subject in one.answers
        for context in ("cluster", "audit")
    )
)


class Rights(NamedTuple):
    """Of the catalogue's subjects, what a login may publish and subscribe to."""

    publish: frozenset[str]
    subscribe: frozenset[str]


def user_of(login: str) -> str:
    return login if login in {"operator", "auditor", *TOKENS.values()} else f"koord.{login}"


def catalogue() -> Rights:
    """Everything that is tried."""
    publish = {f"koord.{kind}.{context}" for kind in ("log", "head") for context in (*CONTEXTS, "quota", "read")}
    publish |= {f"koord.event.{context}.koord.cluster.PodBound.v1.a/b" for context in CONTEXTS}
    publish |= {f"koord.log.read.{context}" for context in (*CONTEXTS, "quota")} | set(ASKED)
    publish |= {f"koord.node.{token}.{kind}" for token in (*TOKENS.values(), "other") for kind in KINDS}
    publish |= {f"_INBOX.{user_of(login)}.x" for login in LOGINS} | {"_INBOX.x", "_INBOX.koord.x", "_R_.x", "anything"}
    publish |= {f"$JS.API.STREAM.{verb}.{stream}" for verb in STREAM_VERBS for stream in STREAMS}
    publish |= {"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.ACCOUNT.PURGE.$G"}
    publish |= {f"$JS.API.DIRECT.GET.{stream}" for stream in STREAMS}
    publish |= {f"$JS.API.DIRECT.GET.KOORD_NODE_SLO.{SLO.format(token)}" for token in TOKENS.values()}
    publish |= {f"$JS.API.DIRECT.GET.{stream}.koord.event.cluster.x" for stream in EVENT_STREAMS}
    for stream in STREAMS:
        publish |= {f"$JS.API.CONSUMER.{verb}.{stream}" for verb in ("CREATE", "NAMES", "LIST")}
        publish |= {
            f"$JS.API.CONSUMER.{verb}.{stream}.mine"
            for verb in ("CREATE", "DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT", "PAUSE", "UNPIN", "LEADER.STEPDOWN")
        }
        publish |= {f"$JS.API.CONSUMER.CREATE.{stream}.mine.koord.event.cluster.x"}
        publish |= {f"$JS.ACK.{stream}.mine.1.1.1.1.0", f"$JS.FC.{stream}.mine.x"}
    publish |= {
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
        "$SYS.REQ.USER.INFO",
        "$MQTT.msgs.koord.node.node-a.report",
    }
    publish |= {"$MQTT.sub.x", "$MQTT.deliver.pubrel.x", "$MQTT.JSA.x.RP", "$G.x"}
    wildcards = {">", "*", "*.>", "koord.>", "koord.*", "koord.log.*", "koord.log.>", "koord.head.*", "koord.head.>"}
    wildcards |= {
        "koord.event.>",
        "koord.event.*.>",
        "koord.event.cluster.>",
        "koord.node.>",
        "koord.*.*.report",
        "koord.log.read.*",
    }
    wildcards |= {f"koord.node.*.{kind}" for kind in KINDS} | {f"koord.node.{token}.*" for token in TOKENS.values()}
    wildcards |= {"_INBOX.>", "_INBOX.*", "_INBOX.*.>", "_INBOX.koord.>", "_INBOX.koord.*.>", "koord.simulator.*"}
    wildcards |= {f"_INBOX.{user_of(login)}.>" for login in LOGINS}
    wildcards |= {
        "$SYS.>",
        "$SYS.ACCOUNT.>",
        "$JS.>",
        "$JS.API.>",
        "$JS.EVENT.>",
        "$MQTT.>",
        "$MQTT.sub.>",
        "$MQTT.msgs.>",
    }
    return Rights(frozenset(publish), frozenset(publish | wildcards))


def covered(subjects: Iterable[str], by: Iterable[str]) -> set[str]:
    """Those of the subjects that one of the patterns covers whole."""
    patterns = [pattern.split(".") for pattern in by]

    def covers(pattern: list[str], subject: list[str]) -> bool:
        for index, token in enumerate(pattern):
            if token == ">":
                return len(subject) > index
            if index >= len(subject) or subject[index] == ">" or (token != "*" and token != subject[index]):
                return False
        return len(pattern) == len(subject)

    return {subject for subject in subjects if any(covers(pattern, subject.split(".")) for pattern in patterns)}


def of_service(one: Declared) -> tuple[set[str], set[str]]:
    """A service announces its own log, says and asks what it declares, keeps its streams; it hears the logs it follows, its
    questions, and what else it declares."""
    publish = {f"koord.log.{one.writes}", f"koord.head.{one.writes}", *one.says, *one.asks}
    for stream in one.streams:
        publish |= {
            f"$JS.API.STREAM.{verb}.{stream}" for verb in ("CREATE", "UPDATE", "INFO", "PURGE", "DELETE", "MSG.GET")
        }
        publish |= {f"$JS.API.DIRECT.GET.{stream}.>"}
    subscribe = {f"koord.{kind}.{context}" for kind in ("log", "head") for context in one.follows}
    return publish, subscribe | {*one.answers, *one.hears}


def expected(login: str) -> Rights:
    """What a login may do, of the catalogue."""
    everything = catalogue()
    user = user_of(login)
    publish: set[str] = set()
    subscribe: set[str] = set()
    if login == "operator":
        publish = {subject for one in members() for subject in one.answers}
        subscribe = {f"koord.{kind}.{context}" for kind in ("log", "head") for context in CONTEXTS}
    elif login == "auditor":
        publish = {"koord.log.read.*"}
        for stream in EVENT_STREAMS:
            publish |= {
                f"$JS.API.STREAM.INFO.{stream}",
                f"$JS.API.CONSUMER.CREATE.{stream}",
                f"$JS.API.CONSUMER.CREATE.{stream}.>",
            }
            publish |= {
                f"$JS.API.CONSUMER.{verb}.{stream}.*" for verb in ("DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT")
            }
            publish |= {f"$JS.ACK.{stream}.>", f"$JS.FC.{stream}.>"}
        subscribe = {"koord.event.>"}
    elif login in TOKENS.values():
        publish = {f"koord.node.{login}.report", f"koord.node.{login}.deed"}
        publish |= {f"$JS.API.DIRECT.GET.KOORD_NODE_SLO.{SLO.format(login)}"}
        subscribe = {f"koord.node.{login}.refused", f"koord.node.{login}.slo"}
    else:
        (one,) = [one for one in members() if one.name == login]
        publish, subscribe = of_service(one)
    own = {f"_INBOX.{user}.>"}
    return Rights(
        frozenset(covered(everything.publish, publish | own)), frozenset(covered(everything.subscribe, subscribe | own))
    )


class Tried(Client):
    """A plain client that remembers what the server refuses it."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, set[str]] = {"publish": set(), "subscription": set()}

    async def meet(self, url: str) -> "Tried":
        login = Login.of(url)

        async def on_error(error: Exception) -> None:
            if found := re.search(r'permissions violation for (\w+) to "([^"]*)"', str(error).lower()):
                self.refused[found[1]].add(found[2])

        await self.connect(login.server, **login.options(), allow_reconnect=False, error_cb=on_error)
        return self

    async def settle(self) -> None:
        """Wait until the server has judged all that was sent before: what it sends back comes in the same order."""
        done = asyncio.Event()

        async def end(_message: Msg) -> None:
            done.set()

        subject = self.new_inbox()
        subscription = await self.subscribe(subject, cb=end)
        await self.publish(subject, b"")
        async with asyncio.timeout(20):
            await done.wait()
        await subscription.unsubscribe()


async def may(url: str) -> Rights:
    """Try the whole catalogue."""
    everything = catalogue()
    client = await Tried().meet(url)
    for subject in sorted(everything.subscribe):
        await client.subscribe(subject)
    await client.settle()
    for subject in sorted(everything.publish):
        await client.publish(subject, b"")
    await client.settle()
    await client.close()
    return Rights(
        frozenset(one for one in everything.publish if one.lower() not in client.refused["publish"]),
        frozenset(one for one in everything.subscribe if one.lower() not in client.refused["subscription"]),
    )


@pytest.mark.parametrize("login", LOGINS)
async def test_a_login_may_use_the_subjects_of_its_declaration_and_no_other(secured: Secured, login: str) -> None:
    found, wanted = await may(secured.env(login)["KOORD_NATS"]), expected(login)
    assert found.publish - wanted.publish == set(), "it may publish what nobody declared"
    assert found.subscribe - wanted.subscribe == set(), "it may hear what nobody declared"
    assert wanted.publish - found.publish == set(), "it may not publish what is declared"
    assert wanted.subscribe - found.subscribe == set(), "it may not hear what is declared"


async def test_the_scheduler_says_and_hears_this() -> None:
    """One row of the matrix in full: an error in how expectations are worked out would show here."""
    assert {one for one in expected("scheduler").publish if one.startswith("koord.")} == {
        "koord.log.scheduling",
        "koord.head.scheduling",
    }
    assert "koord.log.cluster" in expected("scheduler").subscribe
    assert expected("node-a").publish == {
        "koord.node.node-a.report",
        "koord.node.node-a.deed",
        "_INBOX.node-a.x",
        "$JS.API.DIRECT.GET.KOORD_NODE_SLO.koord.node.node-a.slo",
    }
    assert not {one for one in expected("auditor").subscribe if one.startswith(("koord.log", "koord.node"))}


@pytest.mark.parametrize(
    "userinfo", ["", "koord.scheduler:wrong@", "koord.scheduler:@", "nobody:x@", "node-a:wrong@", "operator:operator@"]
)
async def test_who_has_no_login_or_a_wrong_password_is_not_let_in(secured: Secured, userinfo: str) -> None:
    place = secured.bus
    said: list[str] = []

    async def on_error(error: Exception) -> None:
        said.append(str(error).lower())

    client = Client()
    with pytest.raises((nats.errors.Error, OSError)):
        await client.connect(f"nats://{userinfo}{place}", allow_reconnect=False, connect_timeout=2, error_cb=on_error)
    client._transport._io_writer.transport.abort()  # type: ignore[union-attr]
    assert any("authorization violation" in text for text in said)


async def test_an_announcement_reaches_those_that_follow_the_log_and_nobody_else(secured: Secured) -> None:
    clients = {login: await Tried().meet(secured.env(login)["KOORD_NATS"]) for login in LOGINS}
    heard: dict[str, set[str]] = {login: set() for login in LOGINS}
    for login, client in clients.items():

        async def hear(message: Msg, login: str = login) -> None:
            heard[login].add(message.data.decode())

        for context in CONTEXTS:
            await client.subscribe(f"koord.log.{context}", cb=hear)
        await client.flush()
    for one in members():
        await clients[one.name].publish(f"koord.log.{one.writes}", f"{one.name} of {one.writes}".encode())
        await clients[one.name].flush()
    wanted = {
        login: set() if login in {"auditor", *TOKENS.values()} else {f"{one.name} of {one.writes}" for one in members()}
        for login in LOGINS
    }
    for one in members():
        wanted[one.name] = {f"{other.name} of {other.writes}" for other in members() if other.writes in one.follows}
    await until(lambda: heard, holds=lambda heard: heard == wanted)
    for client in clients.values():
        await client.close()


async def test_an_answer_never_goes_to_a_subject_that_the_asker_chose(secured: Secured) -> None:
    """The bus lets a service answer anywhere it is asked to: so it answers to inboxes alone, and no node speaks through it."""
    from shared.bus import Bus

    ingest = Bus(secured.env("metrics-ingest-0")["KOORD_NATS"], name="ingest")
    await ingest.start()
    asked: list[bytes] = []

    async def attend(question: object) -> None:
        asked.append(question.data)  # type: ignore[attr-defined]
        await question.answer(b"accepted")  # type: ignore[attr-defined]

    await ingest.attend("koord.node.*.report", attend)
    heard: list[bytes] = []
    spies = [await Tried().meet(secured.spy(account)) for account in ACCOUNTS]

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    for spy in spies:
        await spy.subscribe("koord.log.cluster", cb=hear)
        await spy.flush()
    agent = await Tried().meet(secured.env("node-a")["KOORD_NATS"])
    await agent.publish("koord.node.node-a.report", b"forged", reply="koord.log.cluster")
    await agent.flush()
    answer = await agent.request("koord.node.node-a.report", b"true", timeout=10)
    assert answer.data == b"accepted"
    assert (asked, heard) == ([b"true"], [])
    await agent.close()
    for spy in spies:
        await spy.close()
    await ingest.close()


async def api(client: Client, what: str, about: Mapping[str, object]) -> dict[str, object]:
    """A question to JetStream."""
    answer = await client.request(f"$JS.API.{what}", json.dumps(about).encode(), timeout=10)
    found: dict[str, object] = json.loads(answer.data)
    return found


async def test_a_stream_takes_and_repeats_nothing_that_another_part_of_the_bus_announces(secured: Secured) -> None:
    """JetStream lets a stream's maker choose its subjects and where they are repeated, and a consumer's where it delivers."""
    heard: list[bytes] = []

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    scheduler = await Tried().meet(secured.env("scheduler")["KOORD_NATS"])
    for subject in ("koord.log.cluster", "koord.head.cluster"):
        await scheduler.subscribe(subject, cb=hear)
    await scheduler.flush()
    for login, stream in (("audit", "KOORD_EVENTS_CLUSTER"), ("metrics-ingest-0", "KOORD_NODE_SLO")):
        maker = await Tried().meet(secured.env(login)["KOORD_NATS"])
        subject = "koord.event.cluster.>" if login == "audit" else "koord.node.*.slo"
        said = subject.replace("*", "x").replace(">", "x")
        config = {
            "name": stream,
            "subjects": [subject, "koord.simulator.>"],
            "republish": {"src": said, "dest": "koord.log.cluster"},
        }
        assert "error" not in await api(maker, f"STREAM.CREATE.{stream}", config)
        await maker.publish(said, b"forged")
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
    assert seen["state"]["messages"] == 1, "the event, and not the question"  # type: ignore[index]
    gateway = await Tried().meet(secured.env("gateway")["KOORD_NATS"])
    await gateway.publish("koord.log.cluster", b"told")
    await until(lambda: heard)
    assert heard == [b"told"]
    for client in (scheduler, auditor, operator, gateway):
        await client.close()


async def test_a_question_crosses_to_who_answers_it(secured: Secured) -> None:
    from shared.bus import Bus

    audit, operator = (Bus(secured.env(login)["KOORD_NATS"], name=login) for login in ("audit", "operator"))
    await audit.start()
    await operator.start()

    async def answer(subject: str, data: bytes) -> bytes:
        return subject.encode() + data

    await audit.answer_on("koord.log.read.*", answer)
    assert await operator.ask("koord.log.read.cluster", b"?", deadline_s=20) == b"koord.log.read.cluster?"
    await audit.close()
    await operator.close()


async def test_a_question_or_a_subject_that_is_not_permitted_is_an_error_at_once_and_said(secured: Secured) -> None:
    from shared.bus import Bus, NotPermitted

    bus = Bus(secured.env("scheduler")["KOORD_NATS"], name="scheduler")
    await bus.start()
    with pytest.raises(NotPermitted, match=r"koord\.scheduler publish on koord\.simulator\.create"):
        async with asyncio.timeout(10):
            await bus.ask("koord.simulator.create", b"", deadline_s=60)
    await bus.hear("koord.node.node-a.slo", lambda _data: None)
    await until(lambda: bus.violations, holds=lambda count: count >= 2)
    assert bus.refused == "koord.scheduler may not subscribe to koord.node.node-a.slo"
    assert bus.connected
    await bus.close()
    stranger = Bus(secured.env("scheduler")["KOORD_NATS"].replace("koord.scheduler:", "koord.scheduler:not"), name="x")
    await stranger.start()
    with pytest.raises(NotPermitted, match=r"the login 'koord\.scheduler' is refused"):
        await stranger.ask("koord.simulator.create", b"", deadline_s=60)
    await stranger.close()


async def test_the_nodes_of_this_test_have_logins() -> None:
    assert set(NODES) == set(TOKENS)
