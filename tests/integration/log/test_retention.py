"""Old partitions are dropped, by the server's clock, and a fold that begins later has the State of the live writer."""

import time
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from services.gateway.service import SERVICE as GATEWAY
from services.metrics_ingest.agent_reports.service import SERVICE as METRICS
from shared.events import Cause, Draft
from shared.events.cluster import (
    EvictionRejected,
    NodeDeleted,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodBound,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import EvictionRequested
from shared.events.log import CarriedForward, WriterStarted
from shared.events.metrics import NodeReportsExpired
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.pod import Pod, PodSpec
from shared.log.admin.newest_events import newest
from shared.log.admin.verify import verify
from shared.log.database import Database
from shared.log.partition_retention import drop, expired
from shared.log.table_names import table_of
from shared.log.writer import LogWriter
from shared.runtime.retention_settings import Retention, RetentionSettings
from shared.settings import BadSetting
from tests.support.retention import DAY_NS, Retaining, grow_old, narrow, partitions

ROWS = 50
MONTH = timedelta(days=30)


@pytest.fixture
async def opened(database: str) -> AsyncIterator[Database]:
    one = Database(database)
    await narrow(one, "cluster", ROWS)
    yield one
    await one.close()


@pytest.fixture
async def gateway(database: str, opened: Database) -> AsyncIterator[Retaining]:
    one = Retaining(database, GATEWAY)
    yield await one.start(time.time_ns() - 90 * DAY_NS)
    await one.close()


def node(name: str, uid: str) -> NodeObserved:
    return NodeObserved(node=name, object=Node(metadata=Metadata(name=name, uid=uid)))


def pod(name: str, node_name: str = "") -> PodObserved:
    uid = f"uid-of-{name}"
    metadata = Metadata(name=name, namespace="a", uid=uid)
    return PodObserved(pod=f"a/{name}", pod_uid=uid, object=Pod(metadata=metadata, spec=PodSpec(node_name=node_name)))


def thing(resource: str, name: str, uid: str) -> ObjectObserved:
    return ObjectObserved(resource=resource, name=name, uid=uid, object={"metadata": {"name": name, "uid": uid}})


FILLER = PodBound("a/b", "u", "n")


async def test_live_objects_outlast_their_partition_and_deleted_ones_do_not(
    opened: Database, gateway: Retaining
) -> None:
    now = time.time_ns()
    await gateway.append(
        node("stays", "1"), node("goes-at-once", "2"), node("goes-later", "3"), node("changes-later", "4"),
        thing("namespaces", "shared-name", "5"), thing("priorityclasses", "shared-name", "6"),
        NodeDeleted(node="goes-at-once", node_uid="2"),
        now_ns=now - 80 * DAY_NS,
    )  # fmt: skip
    await gateway.append(*[FILLER] * 60, now_ns=now - 60 * DAY_NS)
    await gateway.append(
        NodeDeleted(node="goes-later", node_uid="3"), node("changes-later", "7"),
        ObjectDeleted(resource="namespaces", name="shared-name", uid="5"), *[FILLER] * 60,
        now_ns=now - DAY_NS,
    )  # fmt: skip
    await grow_old(opened, "cluster")
    assert await gateway.retain() == 1, "the second holds young events too, the third the head"
    copies = await gateway.rows(CarriedForward)
    assert sorted(row.key for row in copies) == ["shared-name", "stays", "writer"]
    assert sorted(gateway.state.known["nodes"]) == ["changes-later", "stays"]
    assert (await gateway.folded_anew()).encode() == gateway.state.encode()
    verified = await verify(gateway.log, "cluster")
    assert verified.ok, verified
    assert verified.first == ROWS


@pytest.mark.parametrize("change", ["deleted", "bound"])
async def test_a_change_that_is_appended_during_retention_wins(
    opened: Database, gateway: Retaining, change: str
) -> None:
    """Faults 03 and 03b: deleted pods came back in every State, and bound pods were without a node."""
    now = time.time_ns()
    names = [f"p-{number}" for number in range(40)]
    await gateway.append(*map(pod, names), now_ns=now - 80 * DAY_NS)
    await gateway.append(*[FILLER] * 60, now_ns=now - 60 * DAY_NS)
    await gateway.append(FILLER, now_ns=now)
    await grow_old(opened, "cluster")
    gateway.meanwhile = [
        Draft(PodDeleted(pod=f"a/{name}", pod_uid=f"uid-of-{name}") if change == "deleted" else pod(name, "n-0"))
        for name in names[:30]
    ]
    assert await gateway.retain() == 2
    anew = await gateway.folded_anew()
    assert anew.encode() == gateway.state.encode()
    assert sorted(anew.pods) == sorted(f"a/{name}" for name in (names[30:] if change == "deleted" else names))
    assert [one.node for one in anew.pods.values()].count("n-0") == (0 if change == "deleted" else 30)
    carried = {row.key for row in await gateway.rows(CarriedForward)}
    # A pod that is still there is copied as it was: what is kept of it comes later, and wins.
    assert len(carried & {f"a/{name}" for name in names[:30]}) == (0 if change == "deleted" else 30)


async def test_an_event_that_was_carried_forward_is_carried_forward_again(opened: Database, gateway: Retaining) -> None:
    now = time.time_ns()
    await gateway.append(node("stays", "1"), *[FILLER] * 60, now_ns=now - 90 * DAY_NS)
    for days in (80, 70, 60):
        await gateway.append(*[FILLER] * 60, now_ns=now - days * DAY_NS)
        await gateway.append(FILLER, now_ns=now)
        await grow_old(opened, "cluster")
        assert await gateway.retain()
        anew = await gateway.folded_anew()
        assert anew.encode() == gateway.state.encode()
        assert list(anew.known["nodes"]) == ["stays"]
    [started] = await newest(opened, "cluster", [WriterStarted])
    assert started.record.seq == 1, "as it was recorded"
    again = LogWriter(opened, None, "cluster", "test")
    await gateway.close()
    await again.acquire()
    await again.begin("2", (), now_ns=now, seen={})
    assert again.epoch > started.record.event.epoch  # type: ignore[attr-defined]
    await again.close()


async def test_an_intent_and_its_outcome_leave_together(opened: Database, gateway: Retaining) -> None:
    """Fault 04: an eviction that was refused long ago was carried out after the State had been folded anew."""
    now = time.time_ns()
    slo = LogWriter(opened, None, "slo", "test")
    await slo.acquire()
    await slo.begin("1", (), now_ns=now - 80 * DAY_NS, seen={})
    eviction = EvictionRequested(pod_uid="uid-of-guarded", pod="a/guarded", reason="once")
    [intent] = await slo.append([Draft(eviction)], now_ns=now - 80 * DAY_NS, seen={})
    await gateway.follower.caught_up({"slo": intent.seq})
    refused = EvictionRejected(pod="a/guarded", pod_uid="uid-of-guarded", reason="budget")
    await gateway.append(pod("guarded"), Draft(refused, Cause("slo", intent.seq)), now_ns=now - 80 * DAY_NS)
    assert not gateway.state.intents.one_shots
    await gateway.append(*[FILLER] * 60, now_ns=now - 80 * DAY_NS)
    await gateway.append(FILLER, now_ns=now)
    await grow_old(opened, "cluster")
    assert await gateway.retain() == 1
    anew = await gateway.folded_anew()
    assert anew.encode() == gateway.state.encode()
    assert not anew.intents.one_shots, "the outcome is there as long as the intent is"
    await slo.close()


async def test_the_age_of_a_partition_is_measured_by_the_servers_clock_and_the_logs(
    opened: Database, gateway: Retaining
) -> None:
    """Fault 05: one start of a writer with a clock a month ahead dropped the history."""
    now = time.time_ns()
    await gateway.append(*[FILLER] * 120, now_ns=now)
    await gateway.append(FILLER, now_ns=now + 31 * DAY_NS)  # the writer's clock is ahead
    assert await gateway.retain() == 0
    await gateway.append(FILLER, now_ns=now)
    await grow_old(opened, "cluster")  # the server's clock is ahead
    assert await gateway.retain() == 0
    assert len(await partitions(opened, "cluster")) == 3


async def test_a_partition_whose_writers_clock_was_behind_has_the_age_that_the_server_measured(
    opened: Database, gateway: Retaining
) -> None:
    now = time.time_ns()
    await gateway.append(*[FILLER] * 120, now_ns=now - 40 * DAY_NS)
    await gateway.append(FILLER, now_ns=now)
    assert await gateway.retain() == 0
    await grow_old(opened, "cluster", days=20)
    assert await gateway.retain() == 0
    await grow_old(opened, "cluster", days=11)
    assert await gateway.retain() == 2, "one at a time, and never the one that is being written"


async def test_the_newest_days_and_later_partitions_are_dropped_for_no_caller(
    database: str, opened: Database, gateway: Retaining
) -> None:
    now = time.time_ns()
    await gateway.append(*[FILLER] * 120, now_ns=now - 36 * 3600 * 10**9)
    await gateway.append(FILLER, now_ns=now)
    await grow_old(opened, "cluster")
    connection = await asyncpg.connect(database)
    for name in ("events_cluster_p0", "events_cluster_p1", "events_cluster_p2"):
        with pytest.raises(asyncpg.InvalidParameterValueError, match=r"not the oldest .* or is too young"):
            await connection.execute("select koord_drop_partition('cluster', $1)", name)
    assert await expired(opened, "cluster", timedelta(0), most_bytes=0) is None
    await connection.execute("update contexts set kept_at_least = '1 day' where context = 'cluster'")
    found = await expired(opened, "cluster", MONTH, most_bytes=0)
    assert found is not None, "beyond its size"
    with pytest.raises(asyncpg.InvalidParameterValueError, match="not the oldest"):
        await connection.execute("select koord_drop_partition('cluster', 'events_cluster_p1')")
    await drop(opened, "cluster", found)
    assert await connection.fetchval("select count(*) from full_partitions where name = $1", found.table) == 0
    await connection.close()


async def test_a_context_beyond_its_size_loses_its_oldest_partitions(opened: Database, gateway: Retaining) -> None:
    now = time.time_ns()
    large = PodBound("a/" + "b" * 500, "u", "n" * 3_000)
    for _ in range(6):
        await gateway.append(*[large] * 50, now_ns=now - 3 * DAY_NS)
    await gateway.append(FILLER, now_ns=now)
    await grow_old(opened, "cluster")
    assert await expired(opened, "cluster", MONTH) is None
    async with opened.reading() as connection:
        size = (
            "select sum(pg_total_relation_size(inhrelid)) from pg_inherits where inhparent = 'events_cluster'::regclass"
        )
        total = int(await connection.fetchval(size))
    assert await expired(opened, "cluster", MONTH, total) is None
    found = await expired(opened, "cluster", MONTH, total - 1)
    assert found is not None
    assert found.table == "events_cluster_p0"


async def test_reports_are_dropped_early_when_the_disk_is_nearly_full_and_nothing_is_appended_for_it(
    database: str, opened: Database
) -> None:
    now = time.time_ns()
    await narrow(opened, "metrics-0", ROWS)
    one = Retaining(database, METRICS, METRICS.retention)
    await one.start(now - 5 * 3600 * 10**9)
    await one.append(*[NodeReportsExpired(node="n", at_ns=1)] * 120, now_ns=now - 5 * 3600 * 10**9)
    await one.append(NodeReportsExpired(node="n", at_ns=1), now_ns=now)
    await grow_old(opened, "metrics-0", days=1)
    one.disk_free = 0.15
    assert await one.retain() == 0
    one.disk_free = 0.05
    assert await one.retain() == 2
    copies = await one.rows(CarriedForward)
    assert [row.key for row in copies] == ["writer"]
    await one.close()


async def test_a_context_without_a_rule_is_never_cut(database: str, opened: Database) -> None:
    """A size limit for all would otherwise cut a log whose State is a sum over all of it."""
    now = time.time_ns()
    one = Retaining(database, GATEWAY._replace(carry_forward=None), Retention(days=0.1, gigabytes=1e-9))
    await one.start(now - 90 * DAY_NS)
    await one.append(*[FILLER] * 120, now_ns=now - 80 * DAY_NS)
    await one.append(FILLER, now_ns=now)
    await grow_old(opened, "cluster")
    assert await one.retain() == 0
    await one.close()


def test_a_services_setting_precedes_its_declaration_which_precedes_the_common_setting() -> None:
    declared = Retention(days=0.25, gigabytes=5.0)
    assert RetentionSettings.of("metrics-ingest", declared, {}) == declared
    environment = {"KOORD_RETENTION_DAYS": "7", "KOORD_METRICS_INGEST_RETENTION_GB": "2"}
    assert RetentionSettings.of("metrics-ingest", declared, environment) == Retention(0.25, 2.0)
    assert RetentionSettings.of("scheduler", Retention(), environment) == Retention(7.0)
    assert RetentionSettings.of("scheduler", Retention(), {}) == Retention(30.0)
    with pytest.raises(BadSetting, match="KOORD_RETENTION_DAYS"):
        RetentionSettings.of("scheduler", Retention(), {"KOORD_RETENTION_DAYS": "-1"})


def test_reports_are_dropped_after_six_hours_or_five_gigabytes() -> None:
    assert METRICS.retention == Retention(days=0.25, gigabytes=5.0, yields=True)
    assert table_of("metrics-0") == "events_metrics_0"
