"""Exclusive CPUs of a pod on a real API server: from the published YAML and NodeResourceTopologies to the annotation
that the agent reads.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from cli.dev.fake_nodes import TOPOLOGIES, create_nodes, node_object, topology_object
from cli.dev.local_control_plane import Cluster
from tests.cluster.fixtures import StartCluster
from tests.support.kube_system import EXAMPLES, koord, running
from tests.support.waiting import in_thread, until

STATUS = "scheduling.koordinator.sh/resource-status"


async def test_a_pod_from_the_published_yaml_is_bound_with_exclusive_cpus(
    own_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster: Cluster = await asyncio.to_thread(own_cluster, installed=True)
    await asyncio.to_thread(cluster.create_namespace, "web")
    machine = {"cpu": "16", "memory": "32Gi"}
    await asyncio.to_thread(create_nodes, cluster.api, [node_object(name, capacity=machine) for name in ("a", "blind")])
    topology = topology_object("a", cpus=16, memory_gib=32, reserved="0-1")
    await asyncio.to_thread(cluster.api.call, "POST", TOPOLOGIES, topology)
    # The other published object that `kubectl apply -f k8s/examples` brings along: it must not take the CPUs away.
    await asyncio.to_thread(cluster.apply, EXAMPLES / "scheduler-config-loadaware.yaml")
    manifest = (EXAMPLES / "nginx-lsr.yaml").read_text()

    async with running(cluster, tmp_path) as system:

        def given(name: str) -> tuple[str, dict[str, Any]] | None:
            pod = cluster.api.call("GET", f"/api/v1/namespaces/web/pods/{name}")
            status = pod["metadata"]["annotations"].get(STATUS)
            return (pod["spec"]["nodeName"], json.loads(status)) if "nodeName" in pod["spec"] and status else None

        async def create(name: str) -> None:
            (tmp_path / f"{name}.yaml").write_text(manifest.replace("name: nginx-lsr\n", f"name: {name}\n", 1))
            await asyncio.to_thread(cluster.kubectl, "apply", "-n", "web", "-f", str(tmp_path / f"{name}.yaml"))

        # CPUs 0-1 are the kubelet's, so NUMA node 1 is the emptier one; each pod has its 4 whole cores on one NUMA
        # node.
        found = []
        for name in ("first", "second", "third"):
            await create(name)
            found.append(await until(in_thread(given, name), f"CPUs for {name}"))
        assert [node for node, _ in found] == ["a"] * 3
        assert [status["cpuset"] for _, status in found] == ["8-11", "2-5", "12-15"]
        zones = [[zone["node"] for zone in status["numaNodeResources"]] for _, status in found]
        assert zones == [[1], [0], [1]]
        assert found[0][1]["numaNodeResources"][0]["resources"] == {"cpu": "4", "memory": "8Gi"}

        # Two CPUs are left on NUMA node 0: not enough for a fourth pod until one of the three is deleted.
        await create("fourth")

        def reported() -> str:
            pod = cluster.api.call("GET", "/api/v1/namespaces/web/pods/fourth")
            conditions = pod["status"].get("conditions", [])
            return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), "")

        message = await until(in_thread(reported), "condition")
        assert "node(s) invalid CPU Topology" in message
        await asyncio.to_thread(cluster.kubectl, "delete", "pod", "-n", "web", "second", "--grace-period=0", "--force")
        assert await until(in_thread(given, "fourth"), "CPUs for the fourth") == found[1]
        assert '"cpuset":"2-5"' in (await koord(system, "events", "--type", "PodPlaced", "-o", "json")).replace(
            "\\", ""
        )
        await koord(system, "audit", "verify")
