"""Permissions of each login on the bus and in the database: a function of the services' manifests alone.

A right that stands in no declaration does not exist. Families are expanded for the installation's shards; each shard of
a sharded service is a login of its own.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cli.service_list import CONTEXTS, manifest
from services.audit.service_manifest import READ, SUBJECT
from shared.agents import subjects
from shared.bus.login import INBOX
from shared.bus.rejected_stream_requests import AUDITED
from shared.log.announcements import batch_subject, beacon_subject
from shared.runtime.manifest import Manifest
from shared.runtime.sharding import is_sharded, members

EVENTS = f"{SUBJECT}.>"
"""The stream of events for outsiders."""

OLD_EVENTS = f"{READ}.*"
"""By context."""

OPERATOR, AUDITOR = "operator", "auditor"
CORE, FIELD, STREAMS = "CORE", "FIELD", "STREAMS"
"""The parts of the bus. Who may make a stream may let it take and repeat any subject of its account, whatever its
permissions say: so makers of streams are in accounts of their own, with those they serve (nodes; outsiders), and no
stream reaches what is announced in another."""

RESERVED = frozenset({OPERATOR, AUDITOR, "koord"})
"""Tokens that name no node: the first ones of other logins' names."""


class BusRights(NamedTuple):
    """A user of the bus.

    Attributes:
        publish, subscribe: subjects, wildcards allowed; all that is not named is refused.
        serves: of those that it subscribes to, the questions.
        responds: it may respond to requests, once each.
        mqtt: it may also come by MQTT.
        account: the part of the bus that it is in.
    """

    user: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    serves: tuple[str, ...] = ()
    responds: bool = False
    mqtt: bool = False
    account: str = "CORE"


class LogRights(NamedTuple):
    """A role of the database.

    Attributes:
        reads: contexts whose events it may select; None for all of them, also together.
        writes: the context to which it may append; empty for none.
        service: whether it keeps rows of its own beside the log: snapshots, parked events, its registration as a
            follower.
        operates: whether it may pass over events and forget followers.
    """

    role: str
    reads: tuple[str, ...] | None
    writes: str = ""
    service: bool = False
    operates: bool = False


class Login(NamedTuple):
    """One login and its rights.

    Attributes:
        name: of its files: `scheduler`, `metrics-ingest-0`, `operator`, or a node's token.
        log: None for a login without access to the database.
    """

    name: str
    bus: BusRights
    log: LogRights | None = None


def role_of(name: str) -> str:
    """The Postgres role of a login: `metrics-ingest-0` -> `koord_metrics_ingest_0`."""
    return f"koord_{name.replace('-', '_')}"


def declared_logins(names: Iterable[str], shards: int) -> list[Login]:
    """Every login but those of nodes: these services as their shards, then operator and auditor."""
    services = [
        one.member(shard, shards)
        for one in map(manifest, names)
        for shard in range(shards if is_sharded(one.writes) else 1)
    ]
    return [*(of_service(one) for one in services), operator(services, shards), auditor(services)]


def of_service(service: Manifest) -> Login:
    """Of a service, whose families are expanded already."""
    user = f"koord.{service.name}"
    publish = [batch_subject(service.writes), beacon_subject(service.writes), *service.publishes, *service.requests]
    for stream in service.streams:
        publish += _manage(stream)
    subscribe = [subject(context) for context in service.follows for subject in (batch_subject, beacon_subject)]
    served = (*service.serves, *service.serves_leading)
    subscribe += [*served, *service.subscribes, *([AUDITED] if service.streams else [])]
    with_nodes = any(subject.startswith("koord.node.") for subject in service.subscribes)
    bus = BusRights(
        user,
        _with_inbox(user, publish),
        _with_inbox(user, subscribe),
        serves=served,
        responds=bool(served or service.subscribes),
        mqtt=with_nodes,
        account=FIELD if with_nodes else STREAMS if service.streams else CORE,
    )
    return Login(
        service.name, bus, LogRights(role_of(service.name), tuple(service.follows), service.writes, service=True)
    )


def operator(services: Sequence[Manifest], shards: int) -> Login:
    """Login of the operator: subscribes, requests, reads; changes only the tables next to the logs."""
    subscribed = [
        subject(context) for context in members(CONTEXTS, shards) for subject in (batch_subject, beacon_subject)
    ]
    requested = [subject for service in services for subject in (*service.serves, *service.serves_leading)]
    bus = BusRights(OPERATOR, _with_inbox(OPERATOR, requested), _with_inbox(OPERATOR, subscribed))
    return Login(OPERATOR, bus, LogRights(role_of(OPERATOR), None, operates=True))


def auditor(services: Sequence[Manifest]) -> Login:
    """Login of the auditor: reads the event stream with its own consumers, requests old events, and verifies the log."""
    publish = [OLD_EVENTS]
    for stream in dict.fromkeys(one for service in services if EVENTS in service.publishes for one in service.streams):
        publish += _consume(stream)
    bus = BusRights(AUDITOR, _with_inbox(AUDITOR, publish), _with_inbox(AUDITOR, [EVENTS]), account=STREAMS)
    return Login(AUDITOR, bus, LogRights(role_of(AUDITOR), None))


def node(token: str) -> Login:
    """A node's agent: it publishes its own reports and actions, receives its own NodeSLO and refusals.

    By NATS or MQTT; no database.
    """
    name = subjects.node_of_token(token)
    published = [subjects.subject(name, kind) for kind in subjects.FROM_AGENT]
    subscribed = [subjects.subject(name, kind) for kind in subjects.TO_AGENT]
    publish = _with_inbox(token, [*published, subjects.slo_question(name)])
    return Login(token, BusRights(token, publish, _with_inbox(token, subscribed), mqtt=True, account=FIELD))


def _with_inbox(user: str, declared: Iterable[str]) -> tuple[str, ...]:
    return (*sorted(set(declared)), f"{INBOX}.{user}.>")


def _manage(stream: str) -> list[str]:
    """Returns the subjects for making, changing, reading, emptying and removing a stream."""
    verbs = ("CREATE", "UPDATE", "INFO", "PURGE", "DELETE", "MSG.GET")
    return [*(f"$JS.API.STREAM.{verb}.{stream}" for verb in verbs), f"$JS.API.DIRECT.GET.{stream}.>"]


def _consume(stream: str) -> list[str]:
    """Returns the subjects for reading a stream by consumers of its own."""
    consumer = "$JS.API.CONSUMER"
    return [
        f"$JS.API.STREAM.INFO.{stream}",
        f"{consumer}.CREATE.{stream}",
        f"{consumer}.CREATE.{stream}.>",
        f"{consumer}.DURABLE.CREATE.{stream}.*",
        f"{consumer}.INFO.{stream}.*",
        f"{consumer}.DELETE.{stream}.*",
        f"{consumer}.MSG.NEXT.{stream}.*",
        f"$JS.ACK.{stream}.>",
        f"$JS.FC.{stream}.>",
    ]
