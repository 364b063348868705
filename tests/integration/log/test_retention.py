"""Old partitions are dropped; live objects are carried forward first, so a fold that begins later has the same objects."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

import msgspec
import pytest
from sqlalchemy import text

from services.gateway.service import SERVICE as GATEWAY
from services.metrics_ingest.agent_reports.service import SERVICE as METRICS
from shared.events import Draft, RecordedEvent
from shared.events.cluster import DELETED_BY, NodeDeleted, NodeObserved, ObjectDeleted, ObjectObserved, PodBound
from shared.events.log import ConfigApplied
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.log.admin.verify import verify
from shared.log.database import Database
from shared.log.follower import Follower
from shared.log.partition_retention import Partition, carried_forward, drop, expired
from shared.log.reader import LogReader
from shared.log.writer import LogWriter
from shared.runtime.retention import Retention, RetentionSettings, retain
from shared.runtime.service import Service
from shared.settings import BadSetting

if TYPE_CHECKING:
    from shared.runtime.service import Runtime

DAY_NS = 86_400 * SECOND
CUTOFF = timedelta(days=30)


class Known:
    """A State of the live objects and the configuration."""

    SCHEMA: ClassVar[int] = 1

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.objects: dict[str, str] = {}

    def apply(self, record: RecordedEvent) -> None:
        match record.event:
            case NodeObserved(node=name, object=node):
                self.objects[f"node/{name}"] = node.metadata.uid
            case NodeDeleted(node=name):
                self.objects.pop(f"node/{name}", None)
            case ObjectObserved(resource=resource, name=name, uid=uid):
                self.objects[f"{resource}/{name}"] = uid
            case ObjectDeleted(resource=resource, name=name):
                self.objects.pop(f"{resource}/{name}", None)
            case ConfigApplied(digest=digest):
                self.objects["config"] = digest

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self.objects, order="sorted")

    def restore(self, data: bytes) -> None:
        self.objects = msgspec.msgpack.decode(data)


READS = {"cluster": (NodeObserved, NodeDeleted, ObjectObserved, ObjectDeleted, ConfigApplied)}


@pytest.fixture
async def opened(database: str) -> AsyncIterator[Database]:
    one = Database(database)
    async with one.engine.begin() as connection:
        await connection.execute(text("update contexts set partition_rows = 50 where context = 'cluster'"))
        await connection.execute(text("drop table events_cluster_p0, events_cluster_p1, events_cluster_p2"))
        await connection.execute(text("select koord_extend('cluster', 0)"))
    yield one
    await one.close()


def node(name: str, uid: str) -> Draft:
    return Draft(NodeObserved(node=name, object=Node(metadata=Metadata(name=name, uid=uid))))


def thing(resource: str, name: str, uid: str) -> Draft:
    return Draft(ObjectObserved(resource=resource, name=name, uid=uid, object={"metadata": {"name": name}}))


async def fold(database: Database) -> Known:
    follower = Follower("retention", LogReader(database), None, READS, Known)
    await follower.start()
    await follower.stop()
    assert isinstance(follower.state, Known)
    return follower.state


async def test_a_live_object_outlasts_its_partition_and_a_deleted_one_does_not(opened: Database) -> None:
    now = time.time_ns()
    writer = LogWriter(opened, None, "cluster", "test")
    await writer.acquire()
    await writer.begin("1", (), now_ns=now - 90 * DAY_NS, seen={})
    old = [
        node("stays", "1"), node("goes-at-once", "2"), node("goes-later", "3"), node("changes-later", "4"),
        thing("namespaces", "shared-name", "5"), thing("priorityclasses", "shared-name", "6"),
        Draft(NodeDeleted(node="goes-at-once", node_uid="2")), Draft(ConfigApplied(source="file", digest="d", text="t")),
    ]  # fmt: skip
    await writer.append(old, now_ns=now - 80 * DAY_NS)
    await writer.append([Draft(PodBound("a/b", "u", "stays"))] * 60, now_ns=now - 60 * DAY_NS)
    young = [
        Draft(NodeDeleted(node="goes-later", node_uid="3")), node("changes-later", "7"),
        Draft(ObjectDeleted(resource="namespaces", name="shared-name", uid="5")),
    ]  # fmt: skip
    await writer.append([*young, *[Draft(PodBound("a/b", "u", "stays"))] * 60], now_ns=now - DAY_NS)
    before = await fold(opened)

    reader = LogReader(opened)
    cutoff = datetime.fromtimestamp(now / SECOND, UTC) - CUTOFF
    found = await expired(opened, "cluster", cutoff)
    assert found == [Partition("events_cluster_p0", 0, 50)], "the second holds young events too, the third the head"
    drafts = await carried_forward(reader, "cluster", found[0], DELETED_BY)
    assert [draft.event.key for draft in drafts] == ["stays", "shared-name", "file"]
    await writer.append(drafts, now_ns=now)
    await drop(opened, "cluster", found[0])

    after = await fold(opened)
    assert after.objects == before.objects == {
        "node/stays": "1", "node/changes-later": "7", "priorityclasses/shared-name": "6", "config": "d",
    }  # fmt: skip
    verified = await verify(reader, "cluster")
    assert verified.ok, verified
    assert verified.first == 50
    await writer.close()


async def test_an_event_that_was_carried_forward_is_carried_forward_again(opened: Database) -> None:
    now = time.time_ns()
    writer = LogWriter(opened, None, "cluster", "test")
    await writer.acquire()
    await writer.begin("1", (), now_ns=now - 90 * DAY_NS, seen={})
    reader = LogReader(opened)
    await writer.append([node("stays", "1"), *[Draft(PodBound("a/b", "u", "stays"))] * 60], now_ns=now - 90 * DAY_NS)
    for _ in range(3):
        [oldest, *_] = await expired(opened, "cluster", datetime.fromtimestamp(now / SECOND, UTC))
        await writer.append(await carried_forward(reader, "cluster", oldest, DELETED_BY), now_ns=now - 80 * DAY_NS)
        await drop(opened, "cluster", oldest)
        await writer.append([Draft(PodBound("a/b", "u", "stays"))] * 60, now_ns=now - 80 * DAY_NS)
    assert (await fold(opened)).objects == {"node/stays": "1"}
    await writer.close()


async def sizes(database: Database, context: str) -> list[int]:
    """Returns the bytes of each partition with events, the oldest first."""
    query = text(
        "select pg_total_relation_size(c.oid) from pg_inherits i join pg_class c on c.oid = i.inhrelid "
        "where i.inhparent = to_regclass(:parent) order by substring(c.relname from '[0-9]+$')::bigint"
    )
    async with database.reading() as connection:
        return list(await connection.scalars(query, {"parent": f"events_{context}"}))


async def test_a_context_beyond_its_size_loses_its_oldest_partitions(opened: Database) -> None:
    now = time.time_ns()
    writer = LogWriter(opened, None, "cluster", "test")
    await writer.acquire()
    await writer.begin("1", (), now_ns=now, seen={})
    for _ in range(6):
        await writer.append([Draft(PodBound("a/" + "b" * 500, "u", "n" * 3_000))] * 50, now_ns=now)
    long_ago = datetime.fromtimestamp(now / SECOND, UTC) - CUTOFF
    assert await expired(opened, "cluster", long_ago) == []
    found = await sizes(opened, "cluster")
    most = sum(found) - found[0] - found[1] - 1
    gone = await expired(opened, "cluster", long_ago, most)
    assert [partition.table for partition in gone] == [f"events_cluster_p{n}" for n in range(3)]
    everything = await expired(opened, "cluster", long_ago, 0)
    assert everything[-1].high <= writer.head.seq, "the partition that is being written stays"
    assert len(everything) == 6
    for partition in gone:
        await drop(opened, "cluster", partition)
    assert sum(await sizes(opened, "cluster")) <= most
    await writer.close()


class Kept(NamedTuple):
    """The part of a runtime that `retain` needs."""

    service: Service
    retention: Retention
    database: Database
    log: LogReader
    writer: LogWriter

    def now_ns(self) -> int:
        return time.time_ns()

    async def append(self, drafts: list[Draft], *, now_ns: int) -> None:
        await self.writer.append(drafts, now_ns=now_ns)


@pytest.mark.parametrize(("carries_forward", "left"), [(True, {"node/stays": "1"}), (False, {})])
async def test_old_events_are_dropped_and_carried_forward_if_the_service_declares_it(
    opened: Database, carries_forward: bool, left: dict[str, str]
) -> None:
    now = time.time_ns()
    writer = LogWriter(opened, None, "cluster", "test")
    await writer.acquire()
    await writer.begin("1", (), now_ns=now - DAY_NS, seen={})
    await writer.append([node("stays", "1"), *[Draft(PodBound("a/b", "u", "stays"))] * 60], now_ns=now - DAY_NS)
    declared = Retention(days=0.25, carries_forward=carries_forward)
    kept = Kept(GATEWAY._replace(retention=declared), declared, opened, LogReader(opened), writer)
    assert await retain(cast("Runtime", kept)) == 1
    assert (await fold(opened)).objects == left
    await writer.close()


def test_a_services_setting_precedes_its_declaration_which_precedes_the_common_setting() -> None:
    declared = Retention(days=0.25, gigabytes=5.0, carries_forward=False)
    assert RetentionSettings.of("metrics-ingest", declared, {}) == declared
    environment = {"KOORD_RETENTION_DAYS": "7", "KOORD_METRICS_INGEST_RETENTION_GB": "2"}
    assert RetentionSettings.of("metrics-ingest", declared, environment) == Retention(0.25, 2.0, carries_forward=False)
    assert RetentionSettings.of("scheduler", Retention(), environment) == Retention(7.0)
    assert RetentionSettings.of("scheduler", Retention(), {}) == Retention(30.0)
    with pytest.raises(BadSetting, match="KOORD_RETENTION_DAYS"):
        RetentionSettings.of("scheduler", Retention(), {"KOORD_RETENTION_DAYS": "-1"})


def test_reports_are_dropped_after_six_hours_or_five_gigabytes_even_of_live_nodes() -> None:
    assert METRICS.retention == Retention(days=0.25, gigabytes=5.0, carries_forward=False)
