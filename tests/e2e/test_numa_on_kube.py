"""The NUMA and CPU examples of spec/scheduler-core.md 4.11 on a real API server: from topologies and pods to the
annotation that agents read.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli.dev.fake_nodes import TOPOLOGIES, topology_object
from cli.dev.local_control_plane import Cluster
from tests.cluster.fixtures import MakeNodes
from tests.e2e.stage import BASE, Stage, pod, profiles
from tests.support.kube_system import koord, running

POLICY = "node.koordinator.sh/numa-topology-policy"
ALLOCATE = "node.koordinator.sh/numa-allocate-strategy"
RATIO = "node.koordinator.sh/resource-amplification-ratio"
RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"

MOST = """\
- schedulerName: numa-most
  pluginConfig:
  - name: NodeNUMAResource
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeNUMAResourceArgs
      scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}
      numaScoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}
  plugins:
    preFilter: {enabled: [{name: NodeNUMAResource}]}
    filter: {enabled: [{name: NodeNUMAResource}]}
    score: {enabled: [{name: NodeNUMAResource, weight: 1}]}
    reserve: {enabled: [{name: NodeNUMAResource}]}
    preBind: {enabled: [{name: NodeNUMAResource}]}
"""

MACHINES: Mapping[str, Mapping[str, Any]] = {
    "two-least": {},
    "two-most": {"labels": {ALLOCATE: "MostAllocated"}},
    "spread": {},
    "exclusive": {},
    "seven-least": {"labels": {POLICY: "SingleNUMANode"}},
    "seven-most": {"labels": {POLICY: "SingleNUMANode"}},
    "eight-both": {"labels": {POLICY: "Restricted"}},
    "eight-single": {"labels": {POLICY: "SingleNUMANode"}},
    "nine": {},
    "eleven": {"allocatable": {"cpu": "24"}, "annotations": {RATIO: json.dumps({"cpu": 1.5})}},
}
"""Node -> its labels, annotations and allocatable. Each has two zones of 8 CPUs (4 cores of 2 threads) and 16 GiB."""


def bound(name: str, cpus: int, on: str, policy: str = "FullPCPUs", exclusive: str = "", **more: Any) -> dict[str, Any]:
    """Returns a pod with exclusive CPUs."""
    spec = {"preferredCPUBindPolicy": policy} | ({"preferredCPUExclusivePolicy": exclusive} if exclusive else {})
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    return pod(
        name, amounts["cpu"], amounts["memory"], limits=amounts, on=on, labels={"koordinator.sh/qosClass": "LSR"},
        annotations={RESOURCE_SPEC: spec}, priorityClassName="koord-prod", **more,
    )  # fmt: skip


async def test_cpus_and_zones_are_allocated_as_in_the_examples(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    stage = Stage(kube_cluster, namespace, kube_nodes)
    await asyncio.to_thread(kube_cluster.apply, BASE)
    for name, more in MACHINES.items():
        await asyncio.to_thread(kube_nodes, name, **{"capacity": {"cpu": "16", "memory": "32Gi"}, **more})
        await stage.call("POST", TOPOLOGIES, topology_object(name, cpus=16, memory_gib=32))
    config = tmp_path / "scheduler.yaml"
    config.write_text(profiles(MOST))
    settings = {"scheduler": {"KOORD_SCHEDULER_CONFIG": str(config)}}
    try:
        async with running(kube_cluster, tmp_path / "system", settings) as system:
            await _cpus_of_their_own(stage)
            await _example_7(stage)
            await _example_8(stage)
            await _example_9(stage)
            await _example_11(stage)
            await koord(system, "audit", "verify")
    finally:
        for name in MACHINES:
            await stage.call("DELETE", f"{TOPOLOGIES}/{name}")


async def _cpus_of_their_own(stage: Stage) -> None:
    """Checks examples 1, 2 and 6: whole cores, a second pod beside or away from the first, one CPU a core, exclusive
    cores.
    """
    for pods, cpus in (
        ([bound("one", 4, "two-least"), bound("two", 4, "two-least")], ["0-3", "8-11"]),
        ([bound("three", 4, "two-most"), bound("four", 4, "two-most")], ["0-3", "4-7"]),
        ([bound("five", 4, "spread", "SpreadByPCPUs")], ["0,2,4,6"]),
        (
            [bound(f"six-{n}", n, "exclusive", "SpreadByPCPUs", "PCPULevel") for n in (2, 4)],
            ["0,2", "8,10,12,14"],
        ),
    ):
        for body, expected in zip(pods, cpus, strict=True):
            await stage.create(body)
            given = await stage.allocation(body["metadata"]["name"])
            assert given["cpuset"] == expected, body["metadata"]["name"]


async def _example_7(stage: Stage) -> None:
    """Checks that the zone is chosen by the profile's strategy for zones."""
    for on, scheduler, zone in (("seven-least", "koord-scheduler", 1), ("seven-most", "numa-most", 0)):
        await stage.create(pod(f"{on}-first", "4", "4Gi", on=on))
        assert [one["node"] for one in (await stage.allocation(f"{on}-first"))["numaNodeResources"]] == [0]
        await stage.create(pod(f"{on}-second", "4", "8Gi", on=on, scheduler=scheduler))
        given = (await stage.allocation(f"{on}-second"))["numaNodeResources"]
        assert given == [{"node": zone, "resources": {"cpu": "4", "memory": "8Gi"}}]


async def _example_8(stage: Stage) -> None:
    """Checks twelve CPUs: both zones evenly where the policy allows it, no node where one zone must suffice."""
    await stage.create(pod("both", "12", "8Gi", on="eight-both"), pod("single", "12", "8Gi", on="eight-single"))
    half = {"cpu": "6", "memory": "4Gi"}
    given = (await stage.allocation("both"))["numaNodeResources"]
    assert given == [{"node": zone, "resources": half} for zone in (0, 1)]
    why = "Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]"
    assert why in await stage.unschedulable("single")


async def _example_9(stage: Stage) -> None:
    """Checks that a pod with an exclusive zone gets no zone that a pod of several zones uses, and gets one under the
    node's policy alone.
    """
    await stage.create(bound("wide", 10, "nine"))
    assert (await stage.allocation("wide"))["cpuset"] == "0-9"
    own = {TOPOLOGY_SPEC: {"numaTopologyPolicy": "SingleNUMANode"}}
    await stage.create(pod("alone", "1", "1Gi", on="nine", annotations=own))
    assert "Unaligned NUMA Hint" in await stage.unschedulable("alone")
    await stage.remove("alone")
    await stage.call("PATCH", "/api/v1/nodes/nine", {"metadata": {"labels": {POLICY: "SingleNUMANode"}}})
    await asyncio.sleep(1)  # the label's own way through the log
    await stage.create(pod("modest", "1", "1Gi", on="nine"))
    assert [one["node"] for one in (await stage.allocation("modest"))["numaNodeResources"]] == [0]


async def _example_11(stage: Stage) -> None:
    """Checks 16 CPUs that count as 24: exclusive CPUs count one and a half times."""
    await stage.create(bound("bound-4", 4, "eleven"), pod("shared", "6", on="eleven", priorityClassName="koord-prod"))
    for name in ("bound-4", "shared"):
        await stage.placed(name)
    await stage.create(bound("bound-9", 9, "eleven"))
    assert "Insufficient amplified cpu" in await stage.unschedulable("bound-9")
    await stage.create(bound("bound-8", 8, "eleven"))
    assert await stage.placed("bound-8") == "eleven"
