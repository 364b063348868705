"""Preemption on a real API server with the disruption controller: the victims, their eviction through the API, and the
pod that gets the capacity.
"""

import asyncio
from pathlib import Path
from typing import Any

from cli.dev.fake_nodes import create_nodes, node_object
from cli.dev.local_control_plane import Cluster
from tests.cluster.fixtures import StartCluster
from tests.e2e.stage import BASE, Stage, pod
from tests.support.kube_system import System, koord, running
from tests.support.waiting import in_thread, until

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def runs(name: str, cpu: str, on: str, *, grace_s: int = 0, **more: Any) -> dict[str, Any]:
    """Returns a pod with its node set; of priority 0 by default."""
    body = pod(name, cpu, runs_on=on, **more)
    body["spec"]["terminationGracePeriodSeconds"] = grace_s
    return body


async def test_pods_of_lower_priority_are_preempted_through_the_eviction_api(
    own_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster: Cluster = await asyncio.to_thread(own_cluster, installed=True)
    await asyncio.to_thread(cluster.create_namespace, "shop")
    stage = Stage(cluster, "shop", lambda *_, **__: [])
    await asyncio.to_thread(cluster.apply, BASE)
    sizes = {"a": "4", "b": "4", "eight": "8", "full": "4"}
    pair = {"pool": "pair"}
    nodes = [
        node_object(name, capacity={"cpu": cpu}, labels=pair if name in {"a", "b"} else None)
        for name, cpu in sizes.items()
    ]
    await asyncio.to_thread(create_nodes, cluster.api, nodes)
    for name, value, policy in (
        ("ten", 10, ""), ("five", 5, ""), ("hundred", 100, ""), ("polite", 100, "Never"),
    ):  # fmt: skip
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        more = {"preemptionPolicy": policy} if policy else {}
        await stage.call("POST", CLASSES, {**body, "value": value, **more})
    await stage.create(
        runs("guarded", "4", "a", labels={"app": "guarded"}),
        runs("plain", "4", "b", grace_s=300),
        runs("a10", "4", "eight", priorityClassName="ten"),
        runs("b5", "2", "eight", priorityClassName="five"),
        runs("c5", "2", "eight", priorityClassName="five"),
        runs("low", "4", "full"),
    )
    await _ready(stage, "guarded", "plain", "a10", "b5", "c5", "low")
    await asyncio.to_thread(cluster.start_controllers)
    await _guard(stage)
    async with running(cluster, tmp_path) as system:
        await _no_eviction_is_requested(stage, system)
        await _the_reprieve_example(stage)
        await _a_budget_decides_and_the_capacity_is_reserved(stage, system)
        await _a_budget_is_honoured(stage, system)
        await koord(system, "audit", "verify")


async def _ready(stage: Stage, *names: str) -> None:
    """Writes statuses as kubelets report them."""
    for name in names:
        condition = {"type": "Ready", "status": "True"}
        status = {"phase": "Running", "conditions": [condition]}
        await stage.call("PATCH", stage.path("pods", name) + "/status", {"status": status}, "strategic")


async def _guard(stage: Stage) -> None:
    """Creates a disruption budget that allows no eviction of `guarded`."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard"}, "spec": spec}
    await stage.create(budget, kind="poddisruptionbudgets")

    def counted() -> bool:
        found = stage.cluster.api.call("GET", stage.path("poddisruptionbudgets", "guard"))["status"]
        return bool(found.get("currentHealthy") == 1 and found["disruptionsAllowed"] == 0)

    await until(in_thread(counted), "count by the disruption controller")


async def _requested(system: System) -> list[str]:
    """Returns the pods whose eviction was requested, in order."""
    return [row.key.partition("/")[2] async for row in system.log.rows(context="scheduling", kind="EvictionRequested")]


async def _gone(stage: Stage, name: str) -> None:
    def gone() -> bool:
        with stage.cluster.api.session() as session:
            return session.send("GET", stage.path("pods", name))[0] == 404

    await until(in_thread(gone), f"end of {name}")


async def _no_eviction_is_requested(stage: Stage, system: System) -> None:
    """Checks that no eviction is requested for a pod that may not preempt, nor for one that no eviction would help."""
    await stage.create(
        pod("never", "4", on="full", priorityClassName="polite"),
        pod("too-large", "6", on="full", priorityClassName="hundred"),
    )
    for name in ("never", "too-large"):
        assert "Insufficient cpu" in await stage.unschedulable(name)
    assert await _requested(system) == []
    for name in ("never", "too-large"):
        await stage.remove(name)


async def _the_reprieve_example(stage: Stage) -> None:
    """Checks that of pods with 4, 2 and 2 cores, where 3 are needed, the most important one stays, although its
    eviction alone would suffice."""
    await stage.create(pod("needs-3", "3", on="eight", priorityClassName="hundred"))
    assert await stage.placed("needs-3") == "eight"
    for name in ("b5", "c5"):
        await _gone(stage, name)
    assert "deletionTimestamp" not in stage.pod("a10")["metadata"]


async def _a_budget_decides_and_the_capacity_is_reserved(stage: Stage, system: System) -> None:
    """Checks that the pod without a disruption budget is evicted.

    While it terminates, the preemptor's status names the node, and pods of lower priority do not get the capacity.
    """
    before = await _requested(system)
    await stage.create(pod("urgent", "4", priorityClassName="koord-prod", nodeSelector={"pool": "pair"}))
    nominated = await until(in_thread(lambda: stage.pod("urgent")["status"].get("nominatedNodeName")), "nomination")
    assert nominated == "b"
    await until(in_thread(lambda: stage.pod("plain")["metadata"].get("deletionTimestamp")), "eviction of plain")
    assert (await _requested(system))[len(before) :] == ["plain"]
    await stage.create(pod("lesser", "4", on="b", priorityClassName="five"))
    assert "Insufficient cpu" in await stage.unschedulable("lesser")
    await stage.remove("plain")  # its kubelet has ended it
    assert await stage.placed("urgent") == "b"
    assert "nodeName" not in stage.pod("lesser")["spec"]
    assert (await _requested(system))[len(before) :] == ["plain"], "requested once"


async def _a_budget_is_honoured(stage: Stage, system: System) -> None:
    """Checks that the API rejects the eviction of the only victim, with an outcome in the log, until its disruption
    budget allows it."""
    await stage.create(pod("insists", "4", on="a", priorityClassName="koord-prod"))

    async def refused() -> list[str]:
        return [row.key async for row in system.log.rows(context="cluster", kind="EvictionRejected")]

    assert set(await until(refused, "a refused eviction")) == {"shop/guarded"}
    assert "deletionTimestamp" not in stage.pod("guarded")["metadata"]
    await stage.call("DELETE", stage.path("poddisruptionbudgets", "guard"))
    await _gone(stage, "guarded")
    assert await stage.placed("insists") == "a"
