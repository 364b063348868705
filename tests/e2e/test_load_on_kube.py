"""The LoadAware examples of spec/scheduler-core.md 3.8 on a real API server: NodeMetrics as koordlet writes them, and
the nodes that pods are bound to.
"""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cli.dev.local_control_plane import Cluster
from tests.cluster.fixtures import MakeNodes
from tests.e2e.node_metrics import put_report
from tests.e2e.stage import BASE, Stage, pod, profiles
from tests.support.kube_system import System, koord, running

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
BATCH = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "1Gi"}
TEN_GIB = "10737418240"


def profile(name: str, args: str) -> str:
    """Returns a profile that differs from Kubernetes' own in LoadAwareScheduling alone; args over Koordinator's
    defaults."""
    return f"""\
- schedulerName: {name}
  pluginConfig:
  - name: LoadAwareScheduling
    args: {{apiVersion: kubescheduler.config.k8s.io/v1, kind: LoadAwareSchedulingArgs{args}}}
  plugins:
    filter: {{enabled: [{{name: LoadAwareScheduling}}]}}
    score: {{enabled: [{{name: LoadAwareScheduling, weight: 1}}]}}
    reserve: {{enabled: [{{name: LoadAwareScheduling}}]}}
"""


PROFILES = profiles(
    profile("plain", ""),
    profile("dominant", ", dominantResourceWeight: 1, resourceWeights: {cpu: 1, memory: 1}"),
    profile("weighted", ", dominantResourceWeight: 3, resourceWeights: {cpu: 2, memory: 1}"),
    profile("prod", ", prodUsageThresholds: {cpu: 40}, prodUsageIncludeSys: true"),
    *(
        profile(
            f"p95-{duration}",
            f", aggregated: {{usageThresholds: {{cpu: 65}}, usageAggregationType: p95, usageAggregatedDuration: {duration}}}",
        )
        for duration in ("5m", "0s", "10m")
    ),
)

NODES = ("plain", "dominant", "weighted", "prod", "p95", "fresh", "old")


def usage(cpu: str, memory: str = TEN_GIB) -> dict[str, Any]:
    return {"resources": {"cpu": cpu, "memory": memory}}


def metric(
    node: str, *pods: dict[str, Any], system: dict[str, Any] | None = None, age_s: float = 0, **p95: str
) -> dict[str, Any]:
    """Returns a NodeMetric: 8 cores and 10 GiB used, the usage of pods, and 95th percentiles by duration
    (`p95_5m0s`)."""
    updated = (datetime.now(UTC) - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    windows = [{"duration": key.removeprefix("p95_"), "usage": {"p95": usage(cpu)}} for key, cpu in p95.items()]
    measured = {"nodeUsage": usage("8"), "aggregatedNodeUsages": windows}
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": node},
        "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 300, "reportIntervalSeconds": 60}},
        "status": {
            "updateTime": updated,
            "nodeMetric": measured | ({"systemUsage": system} if system else {}),
            "podsMetric": list(pods),
        },
    }


def pod_requesting(milli: int, name: str, on: str, scheduler: str) -> dict[str, Any]:
    """Returns a pod that is estimated at 85 % of so many milli-cores."""
    return pod(name, f"{milli}m", "1Gi", on=on, scheduler=scheduler)


async def test_load_rejects_and_scores_nodes_as_in_the_examples(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    stage = Stage(kube_cluster, namespace, kube_nodes)
    await asyncio.to_thread(kube_cluster.apply, BASE)
    await asyncio.to_thread(kube_nodes, *NODES, capacity={"cpu": "16", "memory": "32Gi"})

    def used(name: str, cpu: str, memory: str = "1Gi", priority: str = "koord-prod") -> dict[str, Any]:
        return {"namespace": namespace, "name": name, "podUsage": usage(cpu, memory), "priority": priority}

    # Pod A of the examples on each node but `prod`: it has just started, is estimated at 1700m, and uses 1000m.
    for node in ("plain", "dominant", "weighted", "p95"):
        await stage.create(_lends(f"a-{node}", node))
    # P1, P2 and P3 of example 6.
    await stage.create(
        pod("p1", "2941m", "1Gi", runs_on="prod"),
        _lends("p2", "prod"),
        pod(
            "p3", runs_on="prod", priorityClassName="koord-batch", labels={"koordinator.sh/qosClass": "BE"},
            requests=BATCH, limits=BATCH,
        ),
    )  # fmt: skip
    system = usage("500m", "1Gi")
    reports = [metric(node, used(f"a-{node}", "1")) for node in ("plain", "dominant", "weighted")]
    reports += [
        metric("p95", used("a-p95", "1"), p95_5m0s="9", p95_15m0s="7"),
        metric(
            "prod", used("p1", "3"), used("p2", "1", priority="koord-mid"), used("p3", "4", priority="koord-batch"),
            system=system,
        ),
        metric("fresh", age_s=120),
        metric("old", age_s=181),
    ]  # fmt: skip
    for each in reports:
        await asyncio.to_thread(put_report, kube_cluster, each)
    config = tmp_path / "scheduler.yaml"
    config.write_text(PROFILES)
    try:
        async with running(
            kube_cluster, tmp_path / "system", {"scheduler": {"KOORD_SCHEDULER_CONFIG": str(config)}}
        ) as on:
            await _examples_4_and_5(stage, on)
            await _example_6(stage)
            await _example_7(stage)
            await _example_8(stage)
            await koord(on, "audit", "verify")
    finally:
        for node in NODES:
            await stage.call("DELETE", f"{METRICS}/{node}")


def _lends(name: str, node: str) -> dict[str, Any]:
    """Returns a pod with requests of 1 core and 1 GiB and limits of twice that: estimated at 1700m and 1503238554
    bytes."""
    return pod(name, "1", "1Gi", limits={"cpu": "2", "memory": "2Gi"}, runs_on=node)


async def _examples_4_and_5(stage: Stage, on: System) -> None:
    """Checks that 65.0 % may be reached and 65.5 % not, and the score of the node that reaches it by the weights of the
    profile.
    """
    await stage.create(pod_requesting(2095, "too-much", "plain", "plain"))
    assert "node(s) cpu usage exceed threshold" in await stage.unschedulable("too-much")
    for scheduler, part in (("plain", 49), ("dominant", 44), ("weighted", 39)):
        limits = {"cpu": "2", "memory": "2Gi"}
        body = pod(f"just-{scheduler}", "1", "1Gi", limits=limits, on=scheduler, scheduler=scheduler)
        await stage.create(body)
        assert await stage.placed(f"just-{scheduler}") == scheduler
        why = json.loads(await koord(on, "why", "pod", f"{stage.namespace}/just-{scheduler}", "-o", "json"))
        assert why["evaluation"]["best"][0]["plugin_scores"]["LoadAwareScheduling"] == part


async def _example_6(stage: Stage) -> None:
    """Checks the threshold of prod pods: it counts the system, the usage of prod pods, and the whole estimate of a pod
    reported with another class.
    """
    await stage.create(pod_requesting(1530, "prod-too-much", "prod", "prod"))
    assert "node(s) cpu usage exceed threshold" in await stage.unschedulable("prod-too-much")
    await stage.create(pod_requesting(1000, "prod-fits", "prod", "prod"))
    assert await stage.placed("prod-fits") == "prod"


async def _example_7(stage: Stage) -> None:
    """Checks the 95th percentile of a window, of the longest one where none is named, and estimates alone where there
    is no such window.
    """
    for milli, scheduler in ((1177, "p95-5m"), (3295, "p95-0s")):
        await stage.create(pod_requesting(milli, f"too-much-{scheduler}", "p95", scheduler))
        assert "node(s) cpu aggregated usage exceed threshold" in await stage.unschedulable(f"too-much-{scheduler}")
    for milli, scheduler in ((1177, "p95-0s"), (3295, "p95-10m")):
        await stage.create(pod_requesting(milli, f"fits-{scheduler}", "p95", scheduler))
        assert await stage.placed(f"fits-{scheduler}") == "p95"


async def _example_8(stage: Stage) -> None:
    """Checks that a report of 180 seconds ago or older has expired, and that its node is rejected."""
    await stage.create(pod_requesting(100, "unknown", "old", "plain"), pod_requesting(100, "known", "fresh", "plain"))
    assert "node(s) nodeMetric expired" in await stage.unschedulable("unknown")
    assert await stage.placed("known") == "fresh"
