"""The whole gateway: changes in the API are recorded, intents are carried out, restarts repeat nothing."""

import asyncio
from pathlib import Path

import pytest

from cli.dev.local_control_plane import Cluster
from shared.events.cluster import ClusterIdentified
from shared.events.intents import FieldsDesired
from shared.log.reader import Row
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.conftest import MakePod
from tests.integration.gateway.effect_harness import placed, unschedulable
from tests.integration.gateway.fault_proxy import FaultProxy
from tests.support.gateway_process import System, running

FAILPOINTS = ["gateway.after-api-answer", "gateway.before-append", "gateway.after-commit", "log.before-commit"]


def pods_of(namespace: str, rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row.type.endswith(f".{kind}.v1") and row.key.startswith(f"{namespace}/")]


async def observed(system: System, namespace: str, count: int) -> None:
    await system.until(lambda rows: len({row.key for row in pods_of(namespace, rows, "PodObserved")}) == count)


async def test_a_created_pod_is_recorded_placed_and_bound(
    kubeconfig: Path,
    database: str,
    tmp_path: Path,
    make_pod: MakePod,
    namespace: str,
    kube_nodes: MakeNodes,
    cluster: Cluster,
) -> None:
    kube_nodes("gw-1")
    first = make_pod("listed")
    async with running(kubeconfig, database, tmp_path) as system:
        await observed(system, namespace, 1)
        second = make_pod("watched")
        await observed(system, namespace, 2)
        intents = await system.decide(placed(first, "gw-1"), placed(second, "gw-1"))
        rows = await system.until(lambda rows: len(pods_of(namespace, rows, "PodBound")) == 2)
        bound = {row.key: row for row in pods_of(namespace, rows, "PodBound")}
        assert bound[f"{namespace}/listed"].cause == f"scheduling/{intents[0].seq}"
        assert bound[f"{namespace}/listed"].correlation == first["metadata"]["uid"]
        await system.until(lambda rows: len(pods_of(namespace, rows, "PodObserved")) == 4)  # each again, on its node
        cluster.api.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/listed?gracePeriodSeconds=0")
        await system.until(lambda rows: pods_of(namespace, rows, "PodDeleted"))
    assert system.gateway.exit_code == 0


async def test_a_restart_repeats_nothing_and_records_changes_of_the_meantime(
    kubeconfig: Path,
    database: str,
    tmp_path: Path,
    make_pod: MakePod,
    namespace: str,
    kube_nodes: MakeNodes,
    cluster: Cluster,
) -> None:
    kube_nodes("gw-1")
    stays, leaves = make_pod("stays"), make_pod("leaves")
    async with running(kubeconfig, database, tmp_path) as system:
        await observed(system, namespace, 2)
        await system.decide(placed(stays, "gw-1"))
        await system.until(lambda rows: pods_of(namespace, rows, "PodBound"))
        await system.until(lambda rows: len(pods_of(namespace, rows, "PodObserved")) == 3)
        await asyncio.to_thread(system.gateway.kill)
        before = await system.counts()
        cluster.api.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/leaves?gracePeriodSeconds=0")
        await system.decide(placed(leaves, "gw-1"))
        await asyncio.to_thread(system.gateway.start)
        await system.until(lambda rows: pods_of(namespace, rows, "BindRejected"))
        after = await system.counts()
        assert after - before == {"WriterStarted": 1, "PodDeleted": 1, "InitialListCompleted": 1, "BindRejected": 1}


async def test_a_log_of_another_cluster_is_refused_and_an_older_log_gets_its_cluster(
    kubeconfig: Path,
    database: str,
    tmp_path: Path,
    make_pod: MakePod,
    namespace: str,
    cluster: Cluster,
    proxy: FaultProxy,
) -> None:
    """The same API server stands for two clusters: its namespace kube-system has another UID in one of the answers."""
    make_pod("web")
    own = cluster.api.call("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
    proxy.fail("GET", "namespaces?fieldSelector", status=504, times=2)
    async with running(kubeconfig, database, tmp_path) as system:
        await observed(system, namespace, 1)
        rows = await system.rows()
        types = [row.type.split(".")[2] for row in rows if row.type != "koord.log.WriterStarted.v1"]
        assert types[0] == "ClusterIdentified"
        assert types.count("ClusterIdentified") == 1
        assert next(row for row in rows if row.type.endswith("ClusterIdentified.v1")).key == own
        await asyncio.to_thread(system.gateway.stop)
        proxy.replace("GET", "namespaces?fieldSelector", own, "8f0d1c5e-0000-4000-8000-000000000000")
        before = await system.counts()
        await asyncio.to_thread(system.gateway.start)
        await system.gateway.ended()
        assert system.gateway.exit_code == 1
        assert (await system.counts()) - before == {"WriterStarted": 1}
        text = system.gateway.log.read_text()
        assert f"this log describes cluster {own} (UID" in text
        assert "is cluster 8f0d1c5e-0000-4000-8000-000000000000" in text


async def test_a_log_of_a_simulated_cluster_is_refused(kubeconfig: Path, database: str, tmp_path: Path) -> None:
    async with running(kubeconfig, database, tmp_path, own=[ClusterIdentified(cluster="simulated/1")]) as system:
        await system.gateway.ended()
        assert system.gateway.exit_code == 1
        assert "the simulated cluster 1" in system.gateway.log.read_text()


async def test_effects_wait_until_everything_is_listed(
    kubeconfig: Path,
    database: str,
    tmp_path: Path,
    make_pod: MakePod,
    namespace: str,
    kube_nodes: MakeNodes,
    proxy: FaultProxy,
) -> None:
    """A placement on an existing node must not be rejected because the nodes were not listed yet."""
    kube_nodes("gw-1")
    pod = make_pod("web")
    busy = proxy.fail("GET", "/nodes?limit", status=503, times=-1)
    async with running(kubeconfig, database, tmp_path) as system:
        await observed(system, namespace, 1)
        await system.decide(placed(pod, "gw-1"))
        await asyncio.sleep(1)
        assert not pods_of(namespace, await system.rows(), "BindRejected")
        assert proxy.count("POST", "/binding") == 0
        busy.times = 0
        await system.until(lambda rows: pods_of(namespace, rows, "PodBound"))


async def test_a_hundred_pods_are_bound_within_seconds_and_a_bad_network_loses_none(
    kubeconfig: Path,
    database: str,
    tmp_path: Path,
    make_pod: MakePod,
    namespace: str,
    kube_nodes: MakeNodes,
    proxy: FaultProxy,
) -> None:
    kube_nodes("gw-1", "gw-2")
    pods = [make_pod(f"web-{number}") for number in range(100)]
    async with running(kubeconfig, database, tmp_path, {"KOORD_GATEWAY_TIMEOUT_S": "1"}) as system:
        await observed(system, namespace, 100)
        proxy.fail("POST", "/binding", "lose", times=10)
        proxy.fail("POST", "/binding", status=500, times=10)
        proxy.fail("POST", "/binding", "hang", times=5)
        await system.decide(*(placed(pod, f"gw-{1 + number % 2}") for number, pod in enumerate(pods)))
        rows = await system.until(lambda rows: len(pods_of(namespace, rows, "PodBound")) == 100)
        assert len({row.key for row in pods_of(namespace, rows, "PodBound")}) == 100
        proxy.cut()  # every watch at once
        await system.until(lambda rows: len(pods_of(namespace, rows, "PodObserved")) == 200)
        assert not [row for row in await system.rows() if row.type.endswith("WatchResumed.v1") and row.key == "pods"]


async def test_a_placement_supersedes_a_condition_and_the_pod_shows_it(
    kubeconfig: Path, database: str, tmp_path: Path, make_pod: MakePod, namespace: str, kube_nodes: MakeNodes
) -> None:
    kube_nodes("gw-1")
    pod = make_pod("web")
    async with running(kubeconfig, database, tmp_path) as system:
        await observed(system, namespace, 1)
        await system.decide(unschedulable(pod), unschedulable(pod, "later", code="Other"), placed(pod, "gw-1"))
        rows = await system.until(lambda rows: len(pods_of(namespace, rows, "DesiredStateSuperseded")) == 2)
        await system.until(lambda rows: pods_of(namespace, rows, "PodBound"))
        assert not pods_of(namespace, rows, "DesiredStateApplied")


async def test_a_desired_state_is_rewritten_after_drift_until_its_object_is_deleted(
    kubeconfig: Path, database: str, tmp_path: Path, kube_nodes: MakeNodes, cluster: Cluster
) -> None:
    def labels() -> dict[str, str]:
        found: dict[str, str] = cluster.api.call("GET", "/api/v1/nodes/gw-desired")["metadata"]["labels"]
        return found

    def outcome_rows(rows: list[Row], kind: str) -> list[Row]:
        return [row for row in rows if row.type.endswith(f".{kind}.v1") and row.key == "gw-desired"]

    kube_nodes("gw-desired")
    patch = {"metadata": {"labels": {"node.koordinator.sh/desired": "ours"}}}
    async with running(kubeconfig, database, tmp_path, {"KOORD_GATEWAY_SWEEP_INTERVAL_S": "0.3"}) as system:
        await system.decide(
            FieldsDesired(resource="nodes", name="gw-desired", fields="labels", patch=patch), context="slo"
        )
        await system.until(lambda rows: len(outcome_rows(rows, "DesiredStateApplied")) == 1)
        theirs = {"metadata": {"labels": {"node.koordinator.sh/desired": "theirs", "other": "theirs"}}}
        cluster.api.call("PATCH", "/api/v1/nodes/gw-desired", theirs)
        await system.until(lambda rows: len(outcome_rows(rows, "DesiredStateApplied")) == 2)
        assert labels()["node.koordinator.sh/desired"] == "ours"
        assert labels()["other"] == "theirs"
        await asyncio.to_thread(system.gateway.kill)
        cluster.api.call("PATCH", "/api/v1/nodes/gw-desired", theirs)
        await asyncio.to_thread(system.gateway.start)
        await system.until(lambda rows: len(outcome_rows(rows, "DesiredStateApplied")) == 3)  # seen by the list
        assert labels()["node.koordinator.sh/desired"] == "ours"
        cluster.api.call("DELETE", "/api/v1/nodes/gw-desired")
        await system.until(lambda rows: outcome_rows(rows, "DesiredStateSuperseded"))


@pytest.mark.parametrize("failpoint", FAILPOINTS)
async def test_a_gateway_that_crashes_at_any_failpoint_binds_each_pod_once(
    failpoint: str,
    kubeconfig: Path,
    database: str,
    tmp_path: Path,
    make_pod: MakePod,
    namespace: str,
    kube_nodes: MakeNodes,
    proxy: FaultProxy,
) -> None:
    kube_nodes("gw-1")
    pods = [make_pod(f"web-{number}") for number in range(30)]
    async with running(kubeconfig, database, tmp_path, {"KOORD_FAILPOINT": f"{failpoint}:5"}) as system:
        died = 0
        async with asyncio.timeout(240):
            requested = (
                0  # in portions, each after the previous one is bound, so that there are enough commits to crash at
            )
            while True:
                if not system.gateway.running:
                    assert system.gateway.exit_code == 137
                    died += 1
                    if died == 3:  # no crash from here on
                        system.gateway.env = {**(system.gateway.env or {}), "KOORD_FAILPOINT": ""}
                    await asyncio.to_thread(system.gateway.start)
                rows = await system.rows()
                seen = {row.key for row in pods_of(namespace, rows, "PodObserved")}
                bound_count = len(pods_of(namespace, rows, "PodBound"))
                if bound_count >= 30:
                    break
                if len(seen) == 30 and bound_count == requested:
                    await system.decide(*(placed(pod, "gw-1") for pod in pods[requested : requested + 5]))
                    requested += 5
                await asyncio.sleep(0.1)
        assert died >= 1
        bound = [row.key for row in pods_of(namespace, await system.rows(), "PodBound")]
        assert sorted(bound) == sorted(f"{namespace}/web-{number}" for number in range(30))
        assert not pods_of(namespace, await system.rows(), "BindRejected")
