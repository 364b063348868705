"""Overcommitment on a real API server: resources that a NodeMetric reports as unused become batch resources in the
node's status, and batch pods are bound to them.
"""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from cli.dev.kube_client import ApiRefused
from cli.dev.local_control_plane import Cluster
from shared.kube.instants import SECOND, instant_text
from tests.cluster.fixtures import MakeNodes
from tests.support.kube_system import running
from tests.support.overcommit_objects import BATCH_CPU, CONFIG_MAPS, SLO, batch_pod
from tests.support.waiting import in_thread, until

NODE = "overcommitted"
PUBLISHED: dict[str, dict[str, Any]] = {
    "colocation-config": {
        "enable": True,
        "metricAggregateDurationSeconds": 300,
        "metricReportIntervalSeconds": 60,
        "metricAggregatePolicy": {"durations": ["5m", "10m", "15m"]},
        "cpuReclaimThresholdPercent": 60,
        "memoryReclaimThresholdPercent": 65,
        "memoryCalculatePolicy": "usage",
        "degradeTimeMinutes": 15,
        "updateTimeThresholdSeconds": 300,
        "resourceDiffThreshold": 0.1,
        "nodeConfigs": [
            {
                "name": "anolis",
                "nodeSelector": {"matchLabels": {"kubernetes.io/kernel": "anolis"}},
                "updateTimeThresholdSeconds": 360,
                "resourceDiffThreshold": 0.2,
            }
        ],
    },
    "resource-threshold-config": {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 55}},
    "resource-qos-config": {
        "clusterStrategy": {
            "policies": {"cpuPolicy": "coreSched", "netQOSPolicy": "terway-qos"},
            "beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}},
        }
    },
}


def config_map(**changes: Any) -> dict[str, Any]:
    documents = PUBLISHED | {"colocation-config": PUBLISHED["colocation-config"] | changes}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": {key: json.dumps(document) for key, document in documents.items()},
    }


def status() -> dict[str, Any]:
    """Returns a report with the present time: 4 cores and 8 GiB, a quarter of it outside of pods."""
    return {
        "updateTime": instant_text(time.time_ns() // SECOND * SECOND),
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": "4", "memory": "8Gi"}},
            "systemUsage": {"resources": {"cpu": "1", "memory": "2Gi"}},
        },
    }


async def test_unused_resources_are_overcommitted_through_the_status_of_the_node(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    api = kube_cluster.api
    kube_nodes(NODE, capacity={"cpu": "32", "memory": "64Gi"})
    metric = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": NODE}}

    def node() -> Any:
        return api.call("GET", f"/api/v1/nodes/{NODE}")

    def overcommitted() -> Any:
        return node()["status"]["allocatable"].get(BATCH_CPU)

    settings = {"slo-controller": {"KOORD_SLO_CONTROLLER_POLL_INTERVAL_S": "1"}}
    try:
        async with running(kube_cluster, tmp_path, settings, more=["slo-controller"]):
            api.call("POST", f"{SLO}/nodemetrics", metric)
            api.call("PATCH", f"{SLO}/nodemetrics/{NODE}/status", {"status": status()})
            api.call("POST", CONFIG_MAPS, config_map())
            # 32 cores, 40 % of them protected, one core used outside of pods: 18.2 cores.
            await until(in_thread(overcommitted), holds=lambda size: size == "18200")
            slo = await until(in_thread(lambda: api.call("GET", f"{SLO}/nodeslos")["items"]))
            qos = slo[0]["spec"]["resourceQOSStrategy"]
            assert qos["policies"] == {"cpuPolicy": "coreSched", "netQOSPolicy": "terway-qos"}
            assert slo[0]["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 55
            policy = await until(
                in_thread(
                    lambda: api.call("GET", f"{SLO}/nodemetrics/{NODE}").get("spec", {}).get("metricCollectPolicy")
                )
            )
            assert policy["nodeAggregatePolicy"] == {"durations": ["5m0s", "10m0s", "15m0s"]}
            assert node()["metadata"]["annotations"]["node.koordinator.sh/cpu-normalization-ratio"] == "1.00"

            path = f"/api/v1/namespaces/{namespace}/pods"
            api.call("POST", path, batch_pod("work"))
            bound = await until(in_thread(lambda: api.call("GET", f"{path}/work")["spec"].get("nodeName")))
            assert bound == NODE

            api.call("PATCH", f"{CONFIG_MAPS}/slo-controller-config", config_map(enable=False))
            await until(in_thread(overcommitted), holds=lambda size: size is None)
            assert BATCH_CPU not in node()["status"]["capacity"]
    finally:
        for path in (f"{CONFIG_MAPS}/slo-controller-config", f"{SLO}/nodemetrics/{NODE}", f"{SLO}/nodeslos/{NODE}"):
            with suppress(ApiRefused):  # the test may have ended before it was there
                api.call("DELETE", path)
