"""PodMigrationJobs on a real API server: each mode, a disruption budget that refuses and then allows, abort by time-out,
pause, and a restart of the descheduler in the middle.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli.dev.fake_nodes import create_nodes, node_object
from cli.dev.local_control_plane import Cluster
from shared.domain.gang import POD_GROUP_LABEL
from tests.cluster.fixtures import StartCluster
from tests.e2e.stage import Stage, pod
from tests.support.kube_system import System, koord, running
from tests.support.waiting import in_thread, until

GROUP = "/apis/scheduling.koordinator.sh/v1alpha1"
JOBS, RESERVATIONS = f"{GROUP}/podmigrationjobs", f"{GROUP}/reservations"
CONFIG = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
profiles:
- pluginConfig:
  - name: MigrationController
    args:
      evictQPS: 100
      objectLimiters: {workload: {duration: 0s}}
"""
REPLICAS = 10


class Site:
    """A StatefulSet whose pods the test itself makes, on three nodes."""

    def __init__(self, cluster: Cluster, system: System) -> None:
        self.cluster, self.system = cluster, system
        self.stage = Stage(cluster, "default", lambda *_, **__: [])
        self.owner: dict[str, Any] = {}

    async def begin(self) -> None:
        labels = {"app": "web"}
        body = {
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"},
            "spec": {
                "replicas": REPLICAS, "serviceName": "web", "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod("web")["spec"]},
            },
        }  # fmt: skip
        made = await self.stage.call("POST", "/apis/apps/v1/namespaces/default/statefulsets", body)
        uid = made["metadata"]["uid"]
        self.owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": uid, "controller": True}

    async def make(self, name: str) -> str:
        """Creates a pod of the StatefulSet; returns its node once it is ready there."""
        await self.create(name)
        return await self.ready(name)

    async def create(self, name: str, **labels: str) -> None:
        """Creates a pod of the StatefulSet."""
        body = pod(name, "1", labels={"app": "web", **labels})
        body["metadata"]["ownerReferences"] = [self.owner]
        await self.stage.create(body)

    async def ready(self, name: str) -> str:
        """Waits until a pod has a node, and makes it ready there; returns the node."""
        node = await self.stage.placed(name)
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.stage.call("PATCH", f"{self.stage.path('pods', name)}/status", {"status": ready}, "strategic")
        return node

    async def move(self, name: str, of: str, **spec: Any) -> None:
        body = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob", "metadata": {"name": name},
            "spec": {"ttl": "5m", "podRef": {"namespace": "default", "name": of}} | spec,
        }  # fmt: skip
        await self.stage.call("POST", JOBS, body)

    def job(self, name: str) -> dict[str, Any]:
        return self.cluster.api.call("GET", f"{JOBS}/{name}").get("status") or {}

    async def status(self, name: str, **fields: str) -> dict[str, Any]:
        """Waits until fields of a job's status have these values."""
        return await until(
            in_thread(lambda: self.job(name)),
            f"{fields} of {name}",
            holds=lambda found: all(found.get(key) == value for key, value in fields.items()),
            within_s=60,
        )

    async def gone(self, name: str) -> None:
        def exists() -> bool:
            found = self.cluster.api.call("GET", self.stage.path("pods"))
            return any(each["metadata"]["name"] == name for each in found["items"])

        await until(in_thread(exists), f"the end of {name}", holds=lambda there: not there, within_s=60)

    def cluster_has(self, name: str) -> bool:
        """Reports whether a pod exists."""
        found = self.cluster.api.call("GET", self.stage.path("pods"))
        return any(each["metadata"]["name"] == name for each in found["items"])

    def events(self, namespace: str, about: str) -> dict[str, dict[str, Any]]:
        """Returns the Events of the descheduler about an object, by reason."""
        found = self.cluster.api.call("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        ours = [each for each in found if each["reportingComponent"] == "koordstream/descheduler"]
        return {each["reason"]: each for each in ours if each["involvedObject"]["name"] == about}

    def reservations(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster.api.call("GET", RESERVATIONS)["items"]
        return found


@pytest.fixture
async def site(own_cluster: StartCluster, tmp_path: Path) -> AsyncIterator[Site]:
    cluster = await asyncio.to_thread(own_cluster, installed=True)
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    nodes = [node_object(f"node-{number}", capacity=capacity) for number in range(3)]
    await asyncio.to_thread(create_nodes, cluster.api, nodes)
    config = tmp_path / "descheduler.yaml"
    config.write_text(CONFIG)
    env = {"descheduler": {"KOORD_DESCHEDULER_CONFIG": str(config)}}
    async with running(cluster, tmp_path, env=env, more=("quota-ledger", "descheduler")) as system:
        found = Site(cluster, system)
        await found.begin()
        yield found


async def test_a_pod_moves_by_each_mode_and_a_disruption_budget_is_obeyed(site: Site) -> None:
    before = await site.make("web-0")
    await site.move("reserve", "web-0")
    await site.gone("web-0")
    [reservation] = await asyncio.to_thread(site.reservations)
    held = reservation["status"]["nodeName"]
    assert (reservation["status"]["phase"], held == before) == ("Available", False)
    site.system.supervisor.kill("descheduler")
    assert await site.make("web-0") == held
    found = await site.status("reserve", phase="Succeeded", status="Complete")
    assert found["podRef"]["name"] == "web-0"
    assert found["nodeName"] == held

    await site.make("web-1")
    await site.move("direct", "web-1", mode="EvictDirectly")
    await site.status("direct", phase="Succeeded")
    await site.gone("web-1")

    await site.make("web-2")
    await _budget(site, 0)
    await site.move("budget", "web-2", mode="EvictDirectly")
    await site.status("budget", status="Eviction", reason="FailedEvict")
    assert site.stage.pod("web-2")["metadata"].get("deletionTimestamp") is None
    await _budget(site, 1)
    await site.status("budget", phase="Succeeded")
    await site.gone("web-2")
    await _check_events(site, held)


async def _check_events(site: Site, held: str) -> None:
    """The steps of the jobs, and the evictions, are Events of the jobs and of the pods."""
    progress = {
        "ReservationCreated", "ReservationScheduled", "EvictComplete", "PodBoundReservation", "BoundPodReady", "Complete"
    }  # fmt: skip
    while_it_waits = {"Evicting", "WaitForPodBindReservation", "WaitForBoundPodReady"}
    reserve = await until(
        in_thread(lambda: site.events("default", "reserve")),
        "the Events of job reserve",
        holds=lambda found: found.keys() - while_it_waits == progress,
        within_s=30,
    )
    assert {each["type"] for each in reserve.values()} == {"Normal"}
    assert reserve["ReservationScheduled"]["message"] == f"A place for the successor of the pod is held on node {held}"
    assert (reserve["Complete"]["action"], reserve["Complete"]["reportingComponent"]) == (
        "Migrating", "koordstream/descheduler"
    )  # fmt: skip
    budget = await asyncio.to_thread(site.events, "default", "budget")
    assert sorted(budget) == ["EvictComplete", "Evicting"], "no end of its own: it awaits no successor"
    pod = await asyncio.to_thread(site.events, "default", "web-2")
    assert pod["Descheduled"]["type"] == "Normal"
    assert pod["Descheduled"]["message"].startswith('Pod "default/web-2" evicted ')


@pytest.mark.soak
async def test_a_job_times_out_or_is_paused_or_aborted_and_leaves_no_place_behind(site: Site) -> None:
    for name in ("web-0", "web-1"):
        await site.make(name)
    await _budget(site, 0)
    await site.move("late", "web-0", ttl="10s")
    await site.status("late", phase="Failed", reason="Timeout")
    await site.move("paused", "web-1", paused=True)
    await asyncio.sleep(2)
    assert site.job("paused") == {}
    await site.stage.call("PATCH", f"{JOBS}/paused", {"spec": {"paused": False}})
    await site.status("paused", status="Eviction", reason="FailedEvict")
    await site.stage.call("PATCH", f"{JOBS}/paused/status", {"status": {"phase": "Aborted"}})
    await until(in_thread(site.reservations), "the end of the places", holds=lambda found: not found, within_s=60)
    assert site.job("paused")["phase"] == "Aborted"
    for name in ("web-0", "web-1"):
        assert site.stage.pod(name)["metadata"].get("deletionTimestamp") is None


@pytest.mark.soak
async def test_a_node_is_drained_within_the_limits_of_its_workload(site: Site) -> None:
    names = [f"web-{number}" for number in range(3)]
    for name in names:
        await site.make(name)
    node = site.stage.pod("web-0")["spec"]["nodeName"]
    leaving = {name for name in names if site.stage.pod(name)["spec"]["nodeName"] == node}
    planned = await koord(site.system, "drain", node, "--dry-run")
    assert all(f"default/{name}" in planned for name in leaving)
    assert not site.cluster.api.call("GET", f"/api/v1/nodes/{node}")["spec"].get("unschedulable")
    assert f"node {node} is being drained" in await koord(site.system, "drain", node, "--reason", "new disks")
    for _ in range(len(leaving)):
        there = {name for name in leaving if site.cluster_has(name)}
        gone = await until(
            in_thread(lambda: {name for name in leaving if not site.cluster_has(name)}), "an eviction", within_s=60
        )
        assert len(there) - len(leaving) + len(gone) <= 2
        for name in gone:
            assert await site.make(name) != node
            leaving.discard(name)
        if not leaving:
            break
    assert site.cluster.api.call("GET", f"/api/v1/nodes/{node}")["spec"]["unschedulable"]
    await until(
        lambda: koord(site.system, "drain", node, "--dry-run"),
        "the end of the drain",
        holds=lambda printed: f"node {node} is not being drained" in printed,
        within_s=60,
    )


@pytest.mark.soak
async def test_a_drain_holds_the_places_of_a_whole_gang_before_the_first_member_leaves(site: Site) -> None:
    names, label = [f"web-{number}" for number in range(3)], {POD_GROUP_LABEL: "train"}
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "train"},
        "spec": {"minMember": len(names)},
    }  # fmt: skip
    await site.stage.call("POST", "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups", group)
    others = ("node-1", "node-2")
    for node in others:
        await site.stage.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    for name in names:
        await site.create(name, **label)
    assert {await site.ready(name) for name in names} == {"node-0"}
    for node in others:
        await site.stage.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
    await koord(site.system, "drain", "node-0")
    there = await until(
        in_thread(lambda: [name for name in names if site.cluster_has(name)]),
        "the first eviction",
        holds=lambda found: len(found) < len(names),
        within_s=60,
    )
    held = await asyncio.to_thread(site.reservations)
    assert len(held) == len(names), f"{there} are left"
    places = sorted(each["status"]["nodeName"] for each in held)
    assert set(places) <= set(others)
    for name in names:
        await site.gone(name)
    for name in names:
        await site.create(name, **label)
    assert sorted([await site.ready(name) for name in names]) == places
    jobs = await asyncio.to_thread(site.cluster.api.call, "GET", JOBS)
    for job in jobs["items"]:
        await site.status(job["metadata"]["name"], phase="Succeeded")
    assert len(jobs["items"]) == len(names)
    assert all(site.cluster_has(name) for name in names), "the scheduler ends no gang whose places are held"


async def _budget(site: Site, allowed: int) -> None:
    """Writes a disruption budget of the pods, with the status that its controller would compute."""
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    if not allowed:
        body = {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }  # fmt: skip
        await site.stage.call("POST", path, body)
    status = {
        "disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 3 - allowed, "expectedPods": 3,
        "observedGeneration": 1,
    }  # fmt: skip
    await site.stage.call("PATCH", f"{path}/web/status", {"status": status})
