"""Expected permissions of each login on the bus, derived from the meaning of the manifests, and a client that tests
them.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.bus.login import Login
from shared.runtime.manifest import Manifest
from tests.integration.security.conftest import SHARDS, members

CONTEXTS = (
    "cluster",
    "scheduling",
    "quota",
    "slo",
    "descheduling",
    "audit",
    *(f"{kind}-{n}" for kind in ("metrics", "nodes", "devices") for n in range(SHARDS)),
)

TOKENS = {"node-a": "node-a", "rack.1": "rack%2E1"}

KINDS = ("report", "action", "inventory", "refused", "slo")

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


def served(one: Manifest) -> tuple[str, ...]:
    """Returns the subjects of the requests that a service responds to, on every replica or on the one that leads."""
    return (*one.serves, *one.serves_leading)


LOGINS = (*(one.name for one in members()), "operator", "auditor", *TOKENS.values())

REQUESTED = tuple(
    dict.fromkeys(
        subject.replace("*", context)
        for one in members()
        for subject in served(one)
        for context in ("cluster", "audit")
    )
)


class Rights(NamedTuple):
    """The subjects of the catalogue that a login may publish on and subscribe to."""

    publish: frozenset[str]
    subscribe: frozenset[str]


def user_of(login: str) -> str:
    return login if login in {"operator", "auditor", *TOKENS.values()} else f"koord.{login}"


def all_permissions() -> Rights:
    """Returns all subjects that are tried."""
    publish = {f"koord.{kind}.{context}" for kind in ("log", "head") for context in (*CONTEXTS, "quota", "read")}
    publish |= {f"koord.event.{context}.koord.cluster.PodBound.v1.a/b" for context in CONTEXTS}
    publish |= {f"koord.log.read.{context}" for context in (*CONTEXTS, "quota")} | set(REQUESTED)
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
        "$JS.EVENT.ADVISORY.API",
        "$MQTT.>",
        "$MQTT.sub.>",
        "$MQTT.msgs.>",
    }
    return Rights(frozenset(publish), frozenset(publish | wildcards))


def covered(subjects: Iterable[str], by: Iterable[str]) -> set[str]:
    """Returns the subjects that one of the patterns covers as a whole."""
    patterns = [pattern.split(".") for pattern in by]

    def covers(pattern: list[str], subject: list[str]) -> bool:
        for index, token in enumerate(pattern):
            if token == ">":
                return len(subject) > index
            if index >= len(subject) or subject[index] == ">" or (token != "*" and token != subject[index]):
                return False
        return len(pattern) == len(subject)

    return {subject for subject in subjects if any(covers(pattern, subject.split(".")) for pattern in patterns)}


def of_service(one: Manifest) -> tuple[set[str], set[str]]:
    """Returns the permissions of a service: it announces its own log, publishes and requests as in its manifest, and
    manages its streams; it subscribes to the logs that it follows, to the requests that it serves, and to the other
    subjects of its manifest."""
    publish = {f"koord.log.{one.writes}", f"koord.head.{one.writes}", *one.publishes, *one.requests}
    for stream in one.streams:
        publish |= {
            f"$JS.API.STREAM.{verb}.{stream}" for verb in ("CREATE", "UPDATE", "INFO", "PURGE", "DELETE", "MSG.GET")
        }
        publish |= {f"$JS.API.DIRECT.GET.{stream}.>"}
    subscribe = {f"koord.{kind}.{context}" for kind in ("log", "head") for context in one.follows}
    subscribe |= {"$JS.EVENT.ADVISORY.API"} if one.streams else set()
    return publish, subscribe | {*served(one), *one.subscribes}


def expected(login: str) -> Rights:
    """Returns a login's permissions among all subjects."""
    everything = all_permissions()
    user = user_of(login)
    publish: set[str] = set()
    subscribe: set[str] = set()
    if login == "operator":
        publish = {subject for one in members() for subject in served(one)}
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
        publish = {f"koord.node.{login}.{kind}" for kind in ("report", "action", "inventory")}
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
    """A plain client that records the server's rejections."""

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
        """Waits until the server has checked all earlier messages: its responses come in the same order."""
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
    """Tries the whole catalogue. Returns the permitted subjects."""
    everything = all_permissions()
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
