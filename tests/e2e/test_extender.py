"""A real kube-scheduler that calls ours as its extender: it avoids nodes that ours rejects, and ours binds and evicts
for it."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from cli.dev.fake_nodes import create_nodes, node_object
from cli.dev.local_control_plane import Cluster
from cli.processes.free_ports import free_port
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from shared.events.scheduling import CycleDecided
from tests.cluster.fixtures import StartCluster
from tests.e2e.node_metrics import put_report, report
from tests.support.kube_system import System, koord, running
from tests.support.pods import written_pod
from tests.support.waiting import in_thread, until

THRESHOLDS = DEFAULT_PROFILE.replace("cpu: 0\n        memory: 0", "cpu: 65\n        memory: 95")

KUBE_SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: {kubeconfig}}}
leaderElection: {{leaderElect: false}}
extenders:
- urlPrefix: http://127.0.0.1:{port}/extender
  filterVerb: filter
  prioritizeVerb: prioritize
  bindVerb: bind
  preemptVerb: preempt
  weight: 10
  nodeCacheCapable: {by_name}
  httpTimeout: 5s
"""


def pod(name: str, cpu: str, priority_class: str = "") -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": "1Gi"}
    classes: dict[str, Any] = {"priorityClassName": priority_class} if priority_class else {}
    return written_pod(name, namespace="shop", requests=requests, terminationGracePeriodSeconds=0, **classes)


async def placed(cluster: Cluster, name: str) -> str:
    def node() -> str:
        return str(cluster.api.call("GET", f"/api/v1/namespaces/shop/pods/{name}")["spec"].get("nodeName", ""))

    return str(await until(in_thread(node), f"node for {name}"))


async def create(cluster: Cluster, body: dict[str, Any]) -> None:
    await asyncio.to_thread(cluster.api.call, "POST", "/api/v1/namespaces/shop/pods", body)


def get(port: int, path: str) -> Any:
    """Returns the response as JSON; None for an error, such as before the scheduler has read the log."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return json.load(answer)
    except urllib.error.HTTPError:
        return None


async def cycles_by_extender(system: System) -> int:
    rows = [row async for row in system.log.rows(context="scheduling", kind="CycleDecided")]
    decided = [json.loads(row.data) for row in rows]
    assert all(row.type == CycleDecided.type_name() for row in rows)
    return sum(event.get("by") == "extender" for event in decided)


@pytest.mark.parametrize("by_name", [True, False], ids=["by name", "whole nodes"])
async def test_kube_scheduler_calls_our_verbs_and_our_scheduler_binds_for_it(
    own_cluster: StartCluster, tmp_path: Path, *, by_name: bool
) -> None:
    cluster = await asyncio.to_thread(own_cluster, installed=True)
    await asyncio.to_thread(cluster.create_namespace, "shop")
    await asyncio.to_thread(create_nodes, cluster.api, [node_object(name) for name in ("calm", "busy", "hot")])
    for name, cores in (("calm", "3"), ("busy", "12"), ("hot", "28")):
        await asyncio.to_thread(put_report, cluster, report(name, cores=cores, p99=cores))
    port = free_port()
    config = tmp_path / "ours.yaml"
    config.write_text(THRESHOLDS)
    ours = {"KOORD_SCHEDULER_INSECURE_LISTEN": f"127.0.0.1:{port}", "KOORD_SCHEDULER_CONFIG": str(config)}
    async with running(cluster, tmp_path, {"scheduler": ours}) as system:
        await until(in_thread(lambda: get(port, "/apis/v1/nodes/hot")), "node in the view")
        theirs = tmp_path / "theirs.yaml"
        theirs.write_text(
            KUBE_SCHEDULER.format(
                kubeconfig=cluster.kubeconfig("system:kube-scheduler"), port=port, by_name=str(by_name).lower()
            )
        )
        await asyncio.to_thread(cluster.start_scheduler, f"--config={theirs}")

        await create(cluster, pod("web", "500m"))
        assert await placed(cluster, "web") == "calm", "the load decides, which kube-scheduler does not evaluate"
        assert await cycles_by_extender(system) == 1
        why = json.loads(await koord(system, "why", "pod", "shop/web", "-o", "json"))
        assert why["node"] == "calm"
        info = await asyncio.to_thread(get, port, "/apis/v1/nodes/calm")
        assert info["requested"]["cpu"] == 500
        assert info["remaining"]["cpu"] == 31_500
        assert info["pods"] == ["shop/web"]
        routes = await asyncio.to_thread(get, port, "/apis/v1/__services__")
        assert "/apis/v1/nodes/:nodeName" in routes["GET"]

        # Both nodes that pass our filters are full of batch pods: our scheduler evicts some on one of them.
        for number in range(2):
            await create(cluster, pod(f"batch-{number}", "30", "koord-batch"))
            await placed(cluster, f"batch-{number}")
        await create(cluster, pod("urgent", "8", "koord-prod"))

        def evicted() -> list[str]:
            items = cluster.api.call("GET", "/api/v1/namespaces/shop/pods")["items"]
            names = {item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"]}
            return [name for name in ("batch-0", "batch-1") if name not in names]

        assert len(await until(in_thread(evicted), "eviction")) == 1
        assert await placed(cluster, "urgent") in {"calm", "busy"}
        requested = [row async for row in system.log.rows(context="scheduling", kind="EvictionRequested")]
        assert len(requested) == 1
