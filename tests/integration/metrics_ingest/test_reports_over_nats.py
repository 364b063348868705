"""Reports over NATS: recorded, joined with pods of the cluster, rejected with a reason, answered after the commit."""

import asyncio
import itertools
import time
from pathlib import Path

from cli.embedded import EmbeddedNats
from cli.service_list import contexts
from cli.supervisor.supervisor import Spec
from shared.agents import node_slo, subjects
from shared.agents.report import ApplicationSum, Forecast, PodSum, encode
from shared.bus.jetstream import StreamRefused, Streams
from shared.domain.node_metric_status import desired_status
from shared.events.cluster import (
    NodeDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodObserved,
)
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.metrics import ClassReported, NodeReported, NodeReportsExpired, PodReported, Usage
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import AggregatePolicy, MetricCollectPolicy, NodeMetric, NodeMetricSpec
from shared.log.database import Database
from shared.log.migration import migrate
from shared.runtime.sharding import shard_of
from tests.support.ingest_process import CORE, report, stage
from tests.support.scheduling_world import node, pod
from tests.support.waiting import until


async def test_an_answered_report_is_in_the_log_with_its_pods_and_the_objects_status(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path) as on:
        await on.observe(
            PodObserved(pod="d/p", pod_uid="u", object=pod("p", on="n1")), NodeObserved(node="n1", object=node("n1"))
        )
        known = PodSum("u", 60 * CORE // 4, 60, CORE // 4, 60 << 20, 60, 1 << 20)
        nginx = ApplicationSum("nginx", "koord-prod", "LS", 2 * CORE, 4, 4 << 30, 4)
        found = await on.first(
            "n1",
            cores=2,
            pods=(known, PodSum("stranger", CORE, 1, CORE)),
            applications=(nginx,),
            reclaimable=Forecast(250, 1 << 30),
        )
        assert found.usage == Usage(2000, 1 << 30)
        assert found.system == Usage(1000, 1 << 29)
        assert found.pods == (ClassReported("koord-prod", "LS", (PodReported("d/p", 250, 1 << 20),)),)
        assert found.unmatched == Usage(1000, 0)
        # The status is not recorded beside the report that it follows from.
        created, recorded = await on.events("metrics-0", ObjectDesired, FieldsDesired, NodeReported)
        assert isinstance(created, ObjectDesired)
        assert isinstance(recorded, NodeReported)
        assert recorded.status_desired
        written = desired_status(recorded)
        assert (created.name, written.name, written.subresource) == ("n1", "n1", "status")
        status = written.patch["status"]
        assert status["nodeMetric"]["nodeUsage"]["resources"] == {"cpu": "2", "memory": "1Gi"}
        used = {"resources": {"cpu": "500m", "memory": "1Gi"}}
        assert status["hostApplicationMetric"] == [
            {"name": "nginx", "usage": used, "priority": "koord-prod", "qos": "LS"}
        ]
        assert status["prodReclaimableMetric"] == {"resource": {"resources": {"cpu": "250m", "memory": "1Gi"}}}


async def test_an_invalid_report_is_rejected_with_a_reason_and_changes_nothing(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path) as on:
        await on.observe(NodeObserved(node="n1", object=node("n1")))
        there = subjects.subject("n1", subjects.REPORT)
        assert "MessagePack" in (await on.send(there, b"\xc1")).refused
        assert "another node" in (await on.send(there, encode(report("n2")))).refused
        ahead = await on.report(report("n1", at_ns=time.time_ns() + 120 * SECOND))
        assert "ahead of our clock" in ahead.refused
        assert "before every window" in (await on.report(report("n1", at_ns=time.time_ns() - 3600 * SECOND))).refused
        assert await on.events("metrics-0", NodeReported, FieldsDesired, ObjectDesired) == []


async def test_a_repeat_counts_once_and_a_report_interval_passes_between_two_recorded_reports(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path) as on:
        await on.observe(NodeObserved(node="n1", object=node("n1")))
        start_ns = time.time_ns() - 300 * SECOND
        await on.first("n1", at_ns=start_ns, seconds=20)
        for number in range(1, 13):  # every 20 seconds, each twice
            sent = report("n1", seq=number, at_ns=start_ns + number * 20 * SECOND, seconds=20)
            answers = await asyncio.gather(on.report(sent), on.report(sent))
            assert all(answer.accepted for answer in answers)
        recorded = await on.reports()
        between_s = [(b.at_ns - a.at_ns) // SECOND for a, b in itertools.pairwise(recorded)]
        assert between_s == [60] * 4


async def test_the_spec_of_the_nodemetric_sets_interval_and_windows(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path) as on:
        spec = NodeMetricSpec(
            metric_collect_policy=MetricCollectPolicy(
                aggregate_duration_seconds=60,
                report_interval_seconds=90,
                node_aggregate_policy=AggregatePolicy(durations=("1m0s",)),
            )
        )
        metric = NodeMetric(metadata=Metadata(name="n1"), spec=spec)
        await on.observe(NodeMetricObserved(node="n1", object=metric), NodeObserved(node="n1", object=node("n1")))
        found = await on.first("n1")
        assert (found.aggregate_s, found.interval_s) == (60, 90)
        assert [(window.duration_s, len(window.node)) for window in found.windows] == [(60, 5)]
        assert await on.events("metrics-0", ObjectDesired) == [], "the object is there"


async def test_each_shard_accepts_the_reports_of_its_own_nodes(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    connection = Database(database)
    await migrate(connection, contexts(2))
    await connection.close()
    specs = [Spec(f"shard-{shard}", "metrics-ingest", {"KOORD_SHARD": str(shard)}) for shard in range(2)]
    async with stage(database, nats, tmp_path, specs=specs, env={"KOORD_METRICS_SHARDS": "2"}) as on:
        names = [f"rack.{number}" for number in range(8)]
        await on.observe(*(NodeObserved(node=name, object=node(name)) for name in names))
        for name in names:
            assert (await on.report(report(name))).accepted
            assert (await on.report(report(name, 2, boot="c"))).accepted
        for shard in range(2):
            own = {each.node for each in await on.reports(f"metrics-{shard}")}
            assert own <= {name for name in names if shard_of(name, 2) == shard}
        await until(lambda: on.reports("metrics-0"), holds=len)
        await until(lambda: on.reports("metrics-1"), holds=len)


async def test_after_a_kill_it_continues_and_its_state_equals_the_fold_of_its_log(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path, env={"KOORD_REBUILD_INTERVAL_S": "1"}) as on:
        await on.observe(NodeObserved(node="n1", object=node("n1")))
        first = await on.first("n1", at_ns=time.time_ns() - 100 * SECOND)
        unit = on.supervisor.units["metrics-ingest"]
        on.supervisor.kill("metrics-ingest")
        await until(lambda: unit.restarts, holds=lambda restarts: restarts == 1)
        assert (await on.report(report("n1", 2, boot="second"))).accepted
        recorded = await on.reports()
        assert recorded[0].at_ns == first.at_ns
        assert len(recorded) == 2
        await until(lambda: unit.status, holds=lambda status: status and status.rebuilt == "equal")


async def test_a_silent_node_is_counted_and_expires_once_it_has_left_the_cluster(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path, env={"KOORD_METRICS_INGEST_STALE_AFTER_S": "1"}) as on:
        await on.observe(NodeObserved(node="n1", object=node("n1")))
        await on.first("n1")
        unit = on.supervisor.units["metrics-ingest"]

        async def silent() -> int:
            return unit.status.counts.get("silent_nodes", 0) if unit.status else 0

        await until(silent, holds=lambda count: count == 1)
        await on.observe(NodeDeleted(node="n1", node_uid="n1"))
        await until(lambda: on.events("metrics-0", NodeReportsExpired), holds=len)
        await until(silent, holds=lambda count: count == 0)
        assert "a node is silent" in unit.process.tail(50)


async def test_a_nodeslo_reaches_the_agents_stream_with_its_position_and_so_does_its_end(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    spec = {"resourceUsedThresholdWithBE": {"enable": True}}
    resource = "nodeslos.slo.koordinator.sh"
    async with stage(database, nats, tmp_path) as on:
        streams = Streams(on.bus)

        async def newest() -> node_slo.NodeSlo | None:
            try:
                stored = await streams.last(subjects.SLO_STREAM, subjects.subject("n.1", subjects.SLO))
            except StreamRefused:
                return None  # there is no stream yet
            return node_slo.decode(stored.data, "n.1") if stored else None

        await on.observe(ObjectObserved(resource=resource, name="n.1", uid="s", object={"spec": spec}))
        first = await until(newest, holds=lambda found: found is not None and found.spec == spec)
        await on.observe(ObjectDeleted(resource=resource, name="n.1", uid="s"))
        last = await until(newest, holds=lambda found: found is not None and found.spec is None)
        assert first is not None
        assert last is not None
        assert last.position > first.position > (0, 0)


async def test_sigterm_ends_the_process_in_order(database: str, nats: EmbeddedNats, tmp_path: Path) -> None:
    async with stage(database, nats, tmp_path) as on:
        await on.observe(NodeObserved(node="n1", object=node("n1")))
        await on.first("n1")
        await on.supervisor.stop()
        assert {unit.process.exit_code for unit in on.supervisor.units.values()} == {0}
