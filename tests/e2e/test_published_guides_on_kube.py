"""The guides' configuration on a real API server, applied with kubectl: the effect of each field."""

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.dev.kube_client import ApiRefused
from cli.dev.local_control_plane import Cluster
from shared.kube.instants import SECOND, instant_text
from shared.kube.quantity import nanos
from shared.log.reader import Row
from tests.cluster.fixtures import MakeNodes
from tests.support.kube_system import System, running
from tests.support.overcommit_objects import CONFIG_MAPS, SLO
from tests.support.pods import written_pod
from tests.support.waiting import until

EXAMPLE = Path(__file__).parents[2] / "k8s" / "examples" / "slo-controller-config.yaml"
DECLARED: dict[str, dict[str, Any]] = {
    key: json.loads(text) for key, text in yaml.safe_load(EXAMPLE.read_text())["data"].items()
}
PLAIN, ANOLIS = "plain", "anolis"
GI = 1 << 30
SECTIONS = {
    "resource-threshold-config": "resourceUsedThresholdWithBE",
    "resource-qos-config": "resourceQOSStrategy",
    "cpu-burst-config": "cpuBurstStrategy",
    "system-config": "systemStrategy",
}
CONTROLLER = {"slo-controller": {"KOORD_SLO_CONTROLLER_POLL_INTERVAL_S": "0.5"}}


class Guide:
    """Two nodes of 32 cores and 64 GiB, one of them with the label that the guides select; their batch and mid
    resources are read from the API.
    """

    def __init__(self, cluster: Cluster, system: System) -> None:
        self.cluster = cluster
        self.system = system

    async def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        return await asyncio.to_thread(self.cluster.api.call, method, path, body)

    async def report(self, node: str, *, beside_pods: str = "2", prod: str = "0", age_s: int = 0) -> None:
        """Writes a NodeMetric's status, as koordlet would."""
        status = {
            "updateTime": instant_text((time.time_ns() // SECOND - age_s) * SECOND),
            "nodeMetric": {
                "nodeUsage": {"resources": {"cpu": beside_pods, "memory": "4Gi"}},
                "systemUsage": {"resources": {"cpu": beside_pods, "memory": "4Gi"}},
            },
            "prodReclaimableMetric": {"resource": {"resources": {"cpu": prod, "memory": prod}}},
        }
        await self.call("PATCH", f"{SLO}/nodemetrics/{node}/status", {"status": status})

    async def configure(self, **changes: Any) -> None:
        """Applies the example's `colocation-config` with other values."""
        text = json.dumps(DECLARED["colocation-config"] | changes)
        await self.call("PATCH", f"{CONFIG_MAPS}/slo-controller-config", {"data": {"colocation-config": text}})

    async def overcommitted(self, node: str, resource: str) -> int | None:
        found = (await self.call("GET", f"/api/v1/nodes/{node}"))["status"]["allocatable"]
        text = found.get(f"kubernetes.io/{resource}")
        return None if text is None else nanos(text) // 10**9

    async def has_amounts(self, node: str, **amounts: int | None) -> None:
        """Waits until the node has exactly these amounts; names as `batch_cpu`."""
        expected = {name.replace("_", "-"): amount for name, amount in amounts.items()}

        async def found() -> dict[str, int | None]:
            return {resource: await self.overcommitted(node, resource) for resource in expected}

        await until(found, holds=lambda overcommitted: bool(overcommitted == expected))

    async def seen(self, kind: str, key: str) -> None:
        """Waits until an event of the cluster is in the log, and its second is over: reports are dated in whole
        seconds."""

        async def rows() -> list[Row]:
            return [row async for row in self.system.log.rows(context="cluster", kind=kind, key=key)]

        last = (await until(rows, f"{kind} of {key}"))[-1].at.timestamp()
        await until(lambda: time.time() >= int(last) + 1)


@pytest.fixture
async def guide(kube_cluster: Cluster, kube_nodes: MakeNodes, tmp_path: Path) -> AsyncIterator[Guide]:
    amounts = {"cpu": "32", "memory": "64Gi"}
    kube_nodes(PLAIN, capacity=amounts)
    kube_nodes(ANOLIS, capacity=amounts, labels={"kubernetes.io/kernel": "anolis"})
    api = kube_cluster.api
    try:
        async with running(kube_cluster, tmp_path, CONTROLLER, more=["slo-controller"]) as system:
            for node in (PLAIN, ANOLIS):
                metric = {
                    "apiVersion": "slo.koordinator.sh/v1alpha1",
                    "kind": "NodeMetric",
                    "metadata": {"name": node},
                }
                api.call("POST", f"{SLO}/nodemetrics", metric)
            yield Guide(kube_cluster, system)
    finally:
        gone = [f"{SLO}/{kind}/{node}" for kind in ("nodemetrics", "nodeslos") for node in (PLAIN, ANOLIS)]
        for path in (f"{CONFIG_MAPS}/slo-controller-config", *gone):
            with contextlib.suppress(ApiRefused):
                api.call("DELETE", path)


def declared_in(declared: Any, found: Any, path: str = "") -> list[str]:
    """Returns the paths at which `found` lacks a declared value."""
    if isinstance(declared, Mapping):
        if not isinstance(found, Mapping):
            return [path]
        return [each for key in declared for each in declared_in(declared[key], found.get(key), f"{path}.{key}")]
    if isinstance(declared, list) and isinstance(found, list) and len(declared) == len(found):
        return [
            each
            for i, pair in enumerate(zip(declared, found, strict=True))
            for each in declared_in(*pair, f"{path}[{i}]")
        ]
    return [] if declared == found else [f"{path} is {found!r}, not {declared!r}"]


async def test_the_guides_configuration_reaches_the_agents_and_the_reports(guide: Guide) -> None:
    """Checks each field of the four NodeSLO documents, of the host applications, and of the reports of nodes."""
    await asyncio.to_thread(guide.cluster.apply, EXAMPLE)

    async def slo(node: str) -> dict[str, Any]:
        found = {item["metadata"]["name"]: item for item in (await guide.call("GET", f"{SLO}/nodeslos"))["items"]}
        spec: dict[str, Any] = found.get(node, {}).get("spec", {})
        return spec

    strategy = DECLARED["resource-threshold-config"]["nodeStrategies"][0]
    for node in (PLAIN, ANOLIS):
        spec = await until(functools.partial(slo, node), holds=lambda spec: "hostApplications" in spec)
        for key, section in SECTIONS.items():
            declared = dict(DECLARED[key]["clusterStrategy"])
            if node == ANOLIS and key == "resource-threshold-config":
                declared |= {name: strategy[name] for name in ("cpuSuppressThresholdPercent", "cpuSuppressPolicy")}
            assert declared_in(declared, spec[section], section) == []
        assert declared_in(DECLARED["host-application-config"]["applications"], spec["hostApplications"]) == []

    async def policy() -> dict[str, Any]:
        spec = (await guide.call("GET", f"{SLO}/nodemetrics/{PLAIN}")).get("spec", {})
        found: dict[str, Any] = spec.get("metricCollectPolicy", {})
        return found

    assert await until(policy) == {
        "aggregateDurationSeconds": 300,
        "reportIntervalSeconds": 60,
        "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "15m0s"]},
        "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    }


async def test_percentages_thresholds_and_missing_reports_change_the_overcommitted_amounts(
    guide: Guide, namespace: str
) -> None:
    """Checks each field of `colocation-config` that affects an amount, by the amounts in the node's status."""
    api = guide.cluster.api
    await guide.report(PLAIN)
    await guide.report(ANOLIS, prod="11")
    await asyncio.to_thread(guide.cluster.apply, EXAMPLE)
    # cpuReclaimThresholdPercent 60, memoryReclaimThresholdPercent 65; 2 cores and 4 GiB are used outside of pods.
    memory = 64 * GI - int(64 * GI * 0.35) - 4 * GI
    await guide.has_amounts(PLAIN, batch_cpu=17_200, batch_memory=memory)
    # midUnallocatedPercent 10 of the capacity that no pod requests.
    await guide.has_amounts(PLAIN, mid_cpu=3_000, mid_memory=6 * GI)
    # prodReclaimable is added, and midCPUThresholdPercent 40 is the limit.
    await guide.report(PLAIN, prod="11")
    await guide.has_amounts(PLAIN, mid_cpu=12_800)
    await guide.has_amounts(ANOLIS, batch_cpu=17_200)
    # resourceDiffThreshold: 9.9 % less is not written, 11 % is; the other node's strategy has 0.2.
    for node in (PLAIN, ANOLIS):
        await guide.report(node, beside_pods="3700m", prod="11")
    await asyncio.sleep(2)
    assert (await guide.overcommitted(PLAIN, "batch-cpu"), await guide.overcommitted(ANOLIS, "batch-cpu")) == (
        17_200,
        17_200,
    )
    for node in (PLAIN, ANOLIS):
        await guide.report(node, beside_pods="3900m", prod="11")
    await guide.has_amounts(PLAIN, batch_cpu=15_300)
    assert await guide.overcommitted(ANOLIS, "batch-cpu") == 17_200
    # updateTimeThresholdSeconds: then any difference is written.
    await guide.configure(updateTimeThresholdSeconds=1, nodeConfigs=[])
    await guide.report(PLAIN, beside_pods="4")
    await guide.has_amounts(PLAIN, batch_cpu=15_200)
    # cpuCalculatePolicy and memoryCalculatePolicy, by a prod pod that requests 4 cores and 8 GiB and is not measured
    # yet.
    requested = {"cpu": "4", "memory": "8Gi"}
    pod = written_pod("prod", requests=requested, limits=requested, nodeName=PLAIN)
    await guide.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    await guide.seen("PodObserved", f"{namespace}/prod")  # a pod counts from the first report after its start on
    await guide.report(PLAIN, beside_pods="4")
    await guide.has_amounts(PLAIN, batch_cpu=11_200, batch_memory=memory - 8 * GI)
    await guide.configure(
        cpuCalculatePolicy="maxUsageRequest", memoryCalculatePolicy="request", updateTimeThresholdSeconds=1
    )
    await guide.has_amounts(PLAIN, batch_cpu=15_200, batch_memory=memory - 4 * GI)
    await asyncio.to_thread(api.call, "DELETE", f"/api/v1/namespaces/{namespace}/pods/prod", {"gracePeriodSeconds": 0})
    # batchCPUThresholdPercent, batchMemoryThresholdPercent; static mid resources.
    await guide.configure(
        batchCPUThresholdPercent=25, batchMemoryThresholdPercent=25, midReclaimMode="static", midStaticCPUReservedPercent=20,
        midStaticMemoryReservedPercent=30, updateTimeThresholdSeconds=1,
    )  # fmt: skip
    await guide.has_amounts(PLAIN, batch_cpu=8_000, batch_memory=16 * GI, mid_cpu=6_400, mid_memory=int(64 * GI * 0.3))
    # The node's own reclaim percentage: the annotation over the cluster's strategy, the label over the annotation.
    await guide.configure(updateTimeThresholdSeconds=1)
    await guide.report(ANOLIS)
    path = f"/api/v1/nodes/{ANOLIS}"
    level = {"node.koordinator.sh/colocation-strategy": '{"cpuReclaimThresholdPercent": 80}'}
    await guide.call("PATCH", path, {"metadata": {"annotations": level}})
    await guide.has_amounts(ANOLIS, batch_cpu=23_600)
    await guide.call("PATCH", path, {"metadata": {"labels": {"node.koordinator.sh/cpu-reclaim-ratio": "0.5"}}})
    await guide.has_amounts(ANOLIS, batch_cpu=14_000)
    # degradeTimeMinutes 15: a report of 14 minutes ago counts, one of 16 does not, and the next brings it back.
    await guide.report(PLAIN, beside_pods="6", age_s=14 * 60)
    await guide.has_amounts(PLAIN, batch_cpu=13_200)
    await guide.report(PLAIN, beside_pods="6", age_s=16 * 60)
    await guide.has_amounts(PLAIN, batch_cpu=0, batch_memory=0, mid_cpu=0, mid_memory=0)  # no pod requests any
    assert await guide.overcommitted(ANOLIS, "batch-cpu") == 14_000, "the other node reports"
    await guide.seen("PodDeleted", f"{namespace}/prod")  # and no longer from the first report after its end on
    await guide.report(PLAIN, beside_pods="6")
    await guide.has_amounts(PLAIN, batch_cpu=13_200)
    # enable.
    await guide.configure(enable=False)
    await guide.has_amounts(PLAIN, batch_cpu=None, batch_memory=None, mid_cpu=None, mid_memory=None)
