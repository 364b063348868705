"""Messages of an agent reach the real API: its report as a NodeMetric, its eviction request as an eviction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.credentials.credentials_folder import env_file, read_env
from cli.dev.kube_client import ApiRefused
from cli.dev.local_control_plane import Cluster
from cli.supervisor.supervisor import Unit
from shared.agents import actions, receipt, subjects
from shared.agents.actions import (
    ActionReport,
    AnyAction,
    EvictionRequested,
    Interfered,
    InterferenceEnded,
    SignalDeviation,
    SuspectedNeighbour,
)
from shared.agents.receipt import Receipt
from shared.agents.report import PodSum, encode
from shared.bus import Bus
from shared.domain.interference import INTERFERED
from tests.cluster.fixtures import MakeNodes
from tests.support.ingest_process import CORE, report
from tests.support.kube_system import System, running
from tests.support.pods import written_pod
from tests.support.waiting import until

NODE = "rack.7"
METRICS = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{NODE}"


class Agent:
    """An agent with the node's own login that sends the messages of a test."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def append_event(self, kind: str, data: bytes) -> Receipt:
        return receipt.decode(await self._bus.request(subjects.subject(NODE, kind), data, deadline_s=30))


@asynccontextmanager
async def agent(on: System) -> AsyncIterator[Agent]:
    login = read_env(env_file(Path(on.endpoints.credentials), subjects.token(NODE), node=True))
    bus = Bus(login["KOORD_NATS"], name="agent")
    await bus.start()
    yield Agent(bus)
    await bus.close()


@pytest.fixture
async def system(kube_cluster: Cluster, kube_nodes: MakeNodes, tmp_path: Path) -> AsyncIterator[System]:
    kube_nodes(NODE)
    async with running(kube_cluster, tmp_path, more=["metrics-ingest", "action-ingest"], nodes=[NODE]) as on:
        yield on


async def created(cluster: Cluster, namespace: str, name: str = "batch", qos: str = "BE") -> dict[str, Any]:
    """Creates a pod on the node."""
    labels = {"koordinator.sh/qosClass": qos}
    body = written_pod(name, labels=labels, nodeName=NODE, terminationGracePeriodSeconds=0)
    made: dict[str, Any] = await asyncio.to_thread(
        cluster.api.call, "POST", f"/api/v1/namespaces/{namespace}/pods", body
    )
    return made


async def test_a_report_becomes_the_status_of_a_nodemetric_that_is_created_for_it(
    system: System, kube_cluster: Cluster, namespace: str
) -> None:
    pod = await created(kube_cluster, namespace)
    sums = (PodSum(pod["metadata"]["uid"], 60 * CORE // 2, 60, CORE // 2, 60 << 30, 60, 1 << 30),)
    await until_ingest_has_the_node(system)
    # One report alone: the watch event of a status is recorded if a newer status is desired before it comes.
    async with agent(system) as node:
        assert (await node.append_event(subjects.REPORT, encode(report(NODE, 1, cores=1.5, pods=sums)))).accepted

    async def seen() -> Any:
        try:
            return await asyncio.to_thread(kube_cluster.api.call, "GET", METRICS)
        except ApiRefused:
            return None

    try:
        found = await until(seen, holds=lambda metric: metric is not None and "status" in metric)
        status = found["status"]
        assert status["updateTime"].endswith("Z")
        assert status["nodeMetric"]["nodeUsage"] == {"resources": {"cpu": "1500m", "memory": "1Gi"}}
        assert status["nodeMetric"]["systemUsage"] == {"resources": {"cpu": "750m", "memory": "512Mi"}}
        assert [each["duration"] for each in status["nodeMetric"]["aggregatedNodeUsages"]] == ["5m0s", "10m0s", "30m0s"]
        usage = {"resources": {"cpu": "500m", "memory": "1Gi"}}
        assert status.get("podsMetric", []) in (
            [],  # reported before the pod was observed
            [{"namespace": namespace, "name": "batch", "priority": "koord-batch", "qos": "BE", "podUsage": usage}],
        )
        # A change by another client is recorded, the watch event of our own status before it is not.
        label = {"metadata": {"labels": {"rack": "7"}}}
        await asyncio.to_thread(kube_cluster.api.call, "PATCH", METRICS, label)
        objects = (await until(lambda: observed(system), holds=lambda found: "labels" in found[-1]["metadata"]))[:-1]
        assert objects
        assert not any("updateTime" in each.get("status", {}) for each in objects)
    finally:
        kube_cluster.api.call("DELETE", METRICS)


async def until_ingest_has_the_node(system: System) -> None:
    """Waits until the node is folded: an earlier report is accepted, but nothing is recorded of a node unheard of."""

    async def seen() -> list[int]:
        rows = [row async for row in system.log.rows(context="cluster")]
        return [row.seq for row in rows if row.type == "koord.cluster.NodeObserved.v1" and row.key == NODE]

    [seq, *_] = await until(seen)

    def folded(unit: Unit) -> bool:
        return unit.spec.name != "metrics-ingest" or (
            unit.status is not None and unit.status.positions.get("cluster", 0) >= seq
        )

    await system.supervisor.wait_until(folded, 240, "at the node")


async def observed(system: System) -> list[dict[str, Any]]:
    """Returns each recorded version of the NodeMetric."""
    rows = [row async for row in system.log.rows(context="cluster")]
    return [
        msgspec.json.decode(row.data)["object"]
        for row in rows
        if row.type == "koord.cluster.NodeMetricObserved.v1" and row.key == NODE
    ]


async def test_an_eviction_that_an_agent_requests_is_carried_out_on_its_own_node_only(
    system: System, kube_cluster: Cluster, namespace: str
) -> None:
    pod = await created(kube_cluster, namespace)
    uid = pod["metadata"]["uid"]
    numbers = iter(range(1, 1_000))

    def action(uid: str) -> bytes:
        shown = ActionReport(NODE, "b", next(numbers), report(NODE).at_ns, EvictionRequested(uid, "memory is short"))
        return actions.encode(shown)

    async with agent(system) as node:
        assert (
            "no running pod"
            in (await node.append_event(subjects.ACTION, action("00000000-0000-4000-8000-000000000000"))).refused
        )

        async def requested() -> Receipt:  # until ingest has folded the pod
            return await node.append_event(subjects.ACTION, action(uid))

        await until(requested, holds=lambda reported: reported.accepted)

    async def gone() -> bool:
        try:
            await asyncio.to_thread(kube_cluster.api.call, "GET", f"/api/v1/namespaces/{namespace}/pods/batch")
        except ApiRefused:
            return True
        return False

    await until(gone)
    rows = [row async for row in system.log.rows(context="nodes-0")]
    kinds = [row.type.split(".")[2] for row in rows if row.type != "koord.log.WriterStarted.v1"]
    assert kinds == ["AgentEvictionRequested", "EvictionRequested"]


@pytest.mark.soak
async def test_a_suspect_gets_a_migration_job_and_the_node_a_label_for_as_long_as_a_pod_is_slowed_down(
    system: System, kube_cluster: Cluster, namespace: str
) -> None:
    web = (await created(kube_cluster, namespace, "web", "LS"))["metadata"]["uid"]
    batch = (await created(kube_cluster, namespace))["metadata"]["uid"]
    numbers = iter(range(1, 1_000))
    deviation = SignalDeviation("schedulingLatency", 8000.0, 500.0, 1000.0)
    suspect = SuspectedNeighbour(batch, 97, "schedulingLatency", "cpu", 1900.0)
    jobs = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"

    async def get(path: str) -> dict[str, Any]:
        found: dict[str, Any] = await asyncio.to_thread(kube_cluster.api.call, "GET", path)
        return found

    async def label() -> str:
        return str((await get(f"/api/v1/nodes/{NODE}"))["metadata"]["labels"].get(INTERFERED, ""))

    async with agent(system) as node:

        async def report_action(action: AnyAction) -> None:
            data = actions.encode(ActionReport(NODE, "b", next(numbers), report(NODE).at_ns, action))
            assert (await node.append_event(subjects.ACTION, data)).accepted

        async def job() -> dict[str, Any] | None:  # until ingest has folded the pods
            await report_action(Interfered(web, report(NODE).at_ns, (deviation,), (suspect,), "migrate"))
            return next(iter((await get(jobs))["items"]), None)

        made = await until(job, "a PodMigrationJob")
        assert made["metadata"]["name"] == f"interference-{batch}"
        assert made["spec"]["podRef"] == {"namespace": namespace, "name": "batch", "uid": batch}
        await asyncio.to_thread(kube_cluster.api.call, "DELETE", f"{jobs}/interference-{batch}")
        await report_action(Interfered(web, report(NODE).at_ns, (deviation,), (suspect,), "hint"))
        await until(label, "the label", holds=lambda found: found == "true")
        await report_action(InterferenceEnded(web, "recovered"))
        await until(label, "no label", holds=lambda found: found == "")
