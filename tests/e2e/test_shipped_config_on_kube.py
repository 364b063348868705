"""Koordinator's own ConfigMap on a real API server, changed while the scheduler runs: applied, rejected, and with
several profiles.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from cli.dev.local_control_plane import Cluster
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from tests.cluster.fixtures import MakeNodes
from tests.e2e.node_metrics import put_report, report
from tests.e2e.stage import BASE, Stage, pod
from tests.support.kube_system import System, koord, running
from tests.support.shipped_config import SHIPPED_WITH_ELECTION
from tests.support.waiting import until

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
CONFIG_MAP = "/api/v1/namespaces/koordinator-system/configmaps/koord-scheduler-config"
GPU = "nvidia.com/gpu"

COLOCATED = """\
- schedulerName: packs-gpus
  pluginConfig:
  - name: NodeResourcesFitPlus
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitPlusArgs
      resources:
        nvidia.com/gpu: {type: MostAllocated, weight: 2}
        cpu: {type: LeastAllocated, weight: 1}
  - name: ScarceResourceAvoidance
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: ScarceResourceAvoidanceArgs
      resources: [nvidia.com/gpu]
  plugins:
    preScore: {enabled: [{name: NodeResourcesFitPlus}]}
    score:
      disabled: [{name: "*"}]
      enabled: [{name: NodeResourcesFitPlus, weight: 2}, {name: ScarceResourceAvoidance, weight: 3}]
"""
"""Another profile: pods without GPUs avoid GPU nodes, pods with GPUs fill them one by one."""


def batch(milli: str) -> dict[str, str]:
    return {"kubernetes.io/batch-cpu": milli, "kubernetes.io/batch-memory": "1Gi"}


async def test_the_shipped_configmap_places_pods_and_the_next_one_is_applied_while_the_scheduler_runs(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    stage = Stage(kube_cluster, namespace, kube_nodes)
    await asyncio.to_thread(kube_cluster.apply, BASE)
    over_committed = {"kubernetes.io/batch-cpu": "20000", "kubernetes.io/batch-memory": "64Gi"}
    await asyncio.to_thread(kube_nodes, "calm", "busy", capacity=over_committed)
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    await asyncio.to_thread(kube_nodes, "dedicated", taints=(taint,), capacity=over_committed)
    for name, cores in (("calm", "4"), ("busy", "31"), ("dedicated", "1")):
        await asyncio.to_thread(put_report, kube_cluster, report(name, cores=cores, p99=cores))
    await _configure(stage, SHIPPED_WITH_ELECTION)
    try:
        async with running(kube_cluster, tmp_path) as system:
            await _shipped_rules(stage)
            await _rejected_and_applied(stage, system)
            await koord(system, "audit", "verify")
    finally:
        await stage.call("DELETE", CONFIG_MAP)
        for name in ("calm", "busy", "dedicated"):
            await stage.call("DELETE", f"{METRICS}/{name}")


async def _shipped_rules(stage: Stage) -> None:
    """Checks that load is scored and rejects no node, that batch resources count in fit and score, and that all stock
    plugins are enabled."""
    await stage.create(pod("web", "1", "1Gi"), pod("web-busy", "1", "1Gi", on="busy"))
    assert await stage.placed("web") == "calm"
    assert await stage.placed("web-busy") == "busy", "at 97 % of its cores: usageThresholds of 0 check nothing"

    # Two batch pods on equal nodes: the second goes to the node with free batch-cpu, although its load is higher.
    await stage.create(pod("big", priorityClassName="koord-batch", requests=batch("18000"), limits=batch("18000")))
    assert await stage.placed("big") == "calm"
    await stage.create(pod("next", priorityClassName="koord-batch", requests=batch("3000"), limits=batch("3000")))
    assert await stage.placed("next") == "busy"
    await stage.create(pod("none", priorityClassName="koord-batch", requests=batch("19000"), limits=batch("19000")))
    reported = await stage.unschedulable("none")
    assert reported.startswith("0/3 nodes are available: "), reported
    assert "2 Insufficient kubernetes.io/batch-cpu" in reported, reported
    assert "1 node(s) had untolerated taint(s)" in reported, reported
    await stage.create(pod("db", "1", tolerations=[{"key": "dedicated", "operator": "Exists"}], on="dedicated"))
    assert await stage.placed("db") == "dedicated"


async def _rejected_and_applied(stage: Stage, system: System) -> None:
    """Checks that an invalid configuration is rejected with path and reason and changes nothing, and that one with
    another profile schedules that profile's pods.
    """
    bad = DEFAULT_PROFILE.replace("nodeMetricExpirationSeconds: 300", "nodeMetricExpirationSeconds: 0")
    await _configure(stage, bad)
    refused = await _status(system, "refused")
    assert refused["stands"]
    assert "nodeMetricExpirationSeconds" in refused["path"] + refused["reason"]
    await stage.create(pod("still", "1"))
    assert await stage.placed("still") in {"calm", "busy"}

    before = (await _status(system, "in_force"))["seq"]
    await asyncio.to_thread(stage.nodes, "gpu-a", "gpu-b", capacity={GPU: "4"})
    await _configure(stage, DEFAULT_PROFILE + COLOCATED)

    async def taken() -> bool:
        return bool((await _status(system, "in_force"))["seq"] > before)

    await until(taken, "the configuration with one more profile")
    one = {GPU: "1"}
    await stage.create(pod("train-1", "1", scheduler="packs-gpus", requests=one, limits=one))
    first = await stage.placed("train-1")
    assert first in {"gpu-a", "gpu-b"}
    await stage.create(pod("train-2", "1", scheduler="packs-gpus", requests=one, limits=one))
    assert await stage.placed("train-2") == first, "MostAllocated: a node's GPUs are filled before the next one's"
    await stage.create(pod("plain", "1", scheduler="packs-gpus"), pod("stranger", "1", scheduler="nobodys"))
    assert await stage.placed("plain") in {"calm", "busy"}, "GPU nodes are scarce"
    await stage.create(pod("after", "1"))
    assert await stage.placed("after")
    assert "nodeName" not in stage.pod("stranger")["spec"]


async def _configure(stage: Stage, text: str) -> None:
    """Writes the ConfigMap as `kubectl apply` would."""
    body = {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "koord-scheduler-config", "namespace": "koordinator-system"},
        "data": {"koord-scheduler-config": text},
    }  # fmt: skip
    file = json.dumps(body)
    await asyncio.to_thread(lambda: stage.cluster.kubectl("apply", "-f", "-", stdin=file))


async def _status(system: System, which: str) -> dict[str, Any]:
    """Waits for the scheduler's row of `koord get configs`. Returns it."""

    async def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await koord(system, "get", "configs", "-o", "json"))["items"][0]
        return found

    found = await until(status, f"a configuration {which}", holds=lambda found: found[which] is not None)
    assert found["name"] == "scheduling"
    return dict(found[which])
