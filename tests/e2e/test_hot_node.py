"""The whole loop on this machine: a process uses all cores, the agent reports that, and the scheduler avoids this node.

The API server is a real one, the load is this machine's own, and no component is replaced by a fake.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from cli.dev.local_control_plane import Cluster
from cli.supervisor.supervisor import Spec, Supervisor
from shared.events.metrics import NodeReported
from shared.kube.instants import SECOND
from tests.cluster.fixtures import MakeNodes
from tests.support.kube_system import System, running
from tests.support.pods import written_pod
from tests.support.waiting import in_thread, until

HERE, THERE = "this-node", "another-node"
INTERVAL_S = 30
"""Between two reports; the least that agents keep to. Their means are over the last minute."""

HOT_PERCENT = 45
"""Threshold from which on a node gets no pods. The second report at the latest contains half a minute of load, whatever
the agent's phase.
"""

CONFIG = f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    filter: {{enabled: [{{name: LoadAwareScheduling}}, {{name: NodeAffinity}}]}}
    score: {{enabled: [{{name: NodeAffinity, weight: 10}}]}}
  pluginConfig:
  - name: LoadAwareScheduling
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: LoadAwareSchedulingArgs
      usageThresholds: {{cpu: {HOT_PERCENT}}}
"""

WOULD_RATHER_RUN_HERE = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {
                    "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [HERE]}]
                },
            }
        ]
    }
}


@contextmanager
def burning() -> Iterator[int]:
    """Uses all cores. Yields the begin, in nanoseconds since the epoch."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield time.time_ns()
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


@asynccontextmanager
async def agent(on: System, directory: Path) -> AsyncIterator[None]:
    """Runs the node's agent with its own login."""
    own = {
        "KOORD_NODE_AGENT_NODE": HERE,
        "KOORD_NODE_AGENT_REPORT_INTERVAL_S": str(INTERVAL_S),
        "KOORD_NODE_AGENT_STATE_DIR": str(directory),
    }
    async with Supervisor([Spec("node-agent", "node-agent", own)], on.endpoints, directory):
        yield


def metric() -> dict[str, Any]:
    """Returns this node's NodeMetric with the spec of an administrator."""
    policy = {"reportIntervalSeconds": INTERVAL_S, "aggregateDurationSeconds": 60}
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": HERE},
        "spec": {"metricCollectPolicy": policy},
    }


async def reports(on: System) -> list[NodeReported]:
    kind = NodeReported.type_name()
    return [
        msgspec.json.decode(row.data, type=NodeReported)
        async for row in on.log.rows(context="metrics-0")
        if row.type == kind
    ]


async def report_after(on: System, at_ns: int, percent: float) -> NodeReported:
    """Waits for the first report after an instant with at least this much cpu. Returns it."""
    milli = (os.cpu_count() or 1) * 10 * percent

    async def first() -> NodeReported | None:
        later = (found for found in await reports(on) if found.at_ns > at_ns)
        return next((found for found in later if (found.usage.cpu_milli or 0) >= milli), None)

    return await until(first, f"a report of {milli:g} milli-cores")


async def placed(cluster: Cluster, namespace: str, name: str) -> str:
    """Creates a pod that prefers this node. Returns the node to which it was bound."""
    spec: dict[str, Any] = {"schedulerName": "koord-scheduler", "affinity": WOULD_RATHER_RUN_HERE}
    body = written_pod(name, requests={"cpu": "10m"}, **spec)
    path = f"/api/v1/namespaces/{namespace}/pods"
    await asyncio.to_thread(cluster.api.call, "POST", path, body)

    def node() -> str:
        return str(cluster.api.call("GET", f"{path}/{name}")["spec"].get("nodeName", ""))

    return await until(in_thread(node), f"node for {name}")


async def test_a_hot_process_on_this_machine_makes_the_scheduler_avoid_this_node_within_two_report_intervals(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    kube_nodes(HERE, THERE, capacity={"cpu": str(os.cpu_count() or 1)})
    path = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
    kube_cluster.api.call("POST", path, metric())
    config = tmp_path / "scheduler.yaml"
    config.write_text(CONFIG)
    settings = {"scheduler": {"KOORD_SCHEDULER_CONFIG": str(config)}}
    try:
        async with (
            running(kube_cluster, tmp_path / "system", settings, more=["metrics-ingest"], nodes=[HERE]) as on,
            agent(on, tmp_path / "agent"),
        ):
            before = await report_after(on, 0, 0)
            if (before.usage.cpu_milli or 0) < (os.cpu_count() or 1) * 10 * (HOT_PERCENT - 5):  # else it is hot already
                assert await placed(kube_cluster, namespace, "before") == HERE
            with burning() as since_ns:
                hot = await report_after(on, since_ns, HOT_PERCENT)
                assert hot.at_ns - since_ns <= (2 * INTERVAL_S + 5) * SECOND
                assert await placed(kube_cluster, namespace, "after") == THERE
                written = await asyncio.to_thread(kube_cluster.api.call, "GET", f"{path}/{HERE}")
        assert written["spec"] == metric()["spec"], "the spec is the administrator's"
        assert written["status"]["nodeMetric"]["nodeUsage"]["resources"].keys() == {"cpu", "memory"}
    finally:
        kube_cluster.api.call("DELETE", f"{path}/{HERE}")
