"""The published YAML, applied with kubectl to a real API server: the pod is bound to the node that upstream's rules
choose."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.cluster.fixtures import StartCluster
from tests.e2e.node_metrics import put_report, report
from tests.support.kube_system import EXAMPLES, koord, running
from tests.support.waiting import in_thread, until

BATCH = {"kubernetes.io/batch-cpu": "20000", "kubernetes.io/batch-memory": "64Gi"}


async def test_a_batch_pod_from_the_published_yaml_is_bound_to_the_node_that_upstreams_rules_choose(
    own_cluster: StartCluster, tmp_path: Path
) -> None:
    from cli.dev.fake_nodes import create_nodes, node_object

    cluster = await asyncio.to_thread(own_cluster)
    await asyncio.to_thread(cluster.kubectl, "apply", "-k", str(EXAMPLES.parent / "base"))
    await asyncio.to_thread(cluster.apply, EXAMPLES / "scheduler-config-loadaware.yaml")
    await asyncio.to_thread(cluster.create_namespace, "web")
    nodes = {
        "calm": report("calm", cores="4", p99="9"),  # p99 28 %
        "peaks": report("peaks", cores="5", p99="26"),  # calm on average, but its p99 of 81 % is over the 65 allowed
        "busy": report("busy", cores="14", p99="16"),  # p99 50 %: allowed, and scored lower
        "silent": report("silent", cores="1", p99="1", age_s=400),  # the calmest, but the report is older than 300 s
    }
    objects = [node_object(name, capacity=BATCH) for name in nodes]
    await asyncio.to_thread(create_nodes, cluster.api, objects)
    for metric in nodes.values():
        await asyncio.to_thread(put_report, cluster, metric)

    async with running(cluster, tmp_path) as system:
        await asyncio.to_thread(cluster.kubectl, "apply", "-n", "web", "-f", str(EXAMPLES / "nginx-batch.yaml"))

        def bound() -> str:
            pod = cluster.api.call("GET", "/api/v1/namespaces/web/pods/nginx")
            return str(pod["spec"].get("nodeName", ""))

        assert await until(in_thread(bound), "binding") == "calm"

        why = json.loads(await koord(system, "why", "pod", "web/nginx", "-o", "json"))
        assert why["node"] == "calm"
        text = await koord(system, "why", "pod", "web/nginx")
        for fact in ("calm", "LoadAwareScheduling", "2 of 4 nodes"):
            assert fact in text, text

        # The next one finds every node too hot, gets that condition, and is requeued by a report below the threshold.
        for name in nodes:
            await asyncio.to_thread(put_report, cluster, report(name, cores="20", p99="30"))
        await asyncio.sleep(1)  # the reports' own way through the log
        manifest = (EXAMPLES / "nginx-batch.yaml").read_text().replace("name: nginx\n", "name: nginx-2\n", 1)
        (tmp_path / "second.yaml").write_text(manifest)
        await asyncio.to_thread(cluster.kubectl, "apply", "-n", "web", "-f", str(tmp_path / "second.yaml"))

        def reported() -> dict[str, Any] | None:
            pod = cluster.api.call("GET", "/api/v1/namespaces/web/pods/nginx-2")
            conditions = {condition["type"]: condition for condition in pod["status"].get("conditions", [])}
            return conditions.get("PodScheduled")

        condition = await until(in_thread(reported), "condition")
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert "usage exceed threshold" in condition["message"]

        def event() -> list[str]:
            events = cluster.api.call("GET", "/api/v1/namespaces/web/events")["items"]
            return [item["reason"] for item in events if item["involvedObject"]["name"] == "nginx-2"]

        assert "FailedScheduling" in await until(in_thread(event), "Kubernetes Event")

        await asyncio.to_thread(put_report, cluster, report("busy", cores="3", p99="4"))

        def second() -> str:
            pod = cluster.api.call("GET", "/api/v1/namespaces/web/pods/nginx-2")
            return str(pod["spec"].get("nodeName", ""))

        assert await until(in_thread(second), "binding") == "busy"
        await koord(system, "audit", "verify")  # fails unless every context verifies
