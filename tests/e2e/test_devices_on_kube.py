"""Devices on a real API server: shares, wholes, multiples, partitions, joint allocation and NUMA alignment, placed and
annotated as Koordinator writes it, seen with kubectl.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.dev.fake_nodes import TOPOLOGIES, topology_object
from cli.dev.local_control_plane import Cluster
from tests.cluster.fixtures import MakeNodes
from tests.e2e.stage import BASE, Stage, pod
from tests.support.kube_system import koord, running

DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
GPU, RDMA, WHOLE = "koordinator.sh/gpu", "koordinator.sh/rdma", "nvidia.com/gpu"
JOINT = "scheduling.koordinator.sh/device-joint-allocate"
PARTITION = "scheduling.koordinator.sh/gpu-partition-spec"
ALLOCATED = r"{.metadata.annotations.scheduling\.koordinator\.sh/device-allocated}"
POLICY = "node.koordinator.sh/numa-topology-policy"

MACHINES: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "gpu-plain": (4, {}),
    "gpu-h100": (8, {"node.koordinator.sh/gpu-vendor": "nvidia", "node.koordinator.sh/gpu-model": "H100"}),
    "gpu-numa": (8, {POLICY: "SingleNUMANode"}),
}
"""Node -> its GPUs, and its labels. Two GPUs and a network card are below each PCIe switch; four GPUs below each NUMA
node of eight CPUs."""


def device_object(node: str, gpus: int) -> dict[str, Any]:
    """Returns the Device of a machine."""
    amounts = {
        "koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100", "koordinator.sh/gpu-memory": "80Gi"
    }  # fmt: skip
    listed = [
        {
            "type": "gpu", "minor": minor, "id": f"GPU-{node}-{minor}", "health": True, "resources": amounts,
            "topology": {"socketID": 0, "nodeID": minor // 4, "pcieID": f"pcie-{minor // 2}"},
        }
        for minor in range(gpus)
    ] + [
        {
            "type": "rdma", "minor": minor, "id": f"mlx5_{minor}", "health": True, "resources": {RDMA: "100"},
            "topology": {"socketID": 0, "nodeID": minor // 2, "pcieID": f"pcie-{minor}"},
        }
        for minor in range(gpus // 2)
    ]  # fmt: skip
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": node},
        "spec": {"devices": listed},
    }


def requesting(name: str, on: str, amounts: Mapping[str, str], cpu: str = "1", **more: Any) -> dict[str, Any]:
    """Returns a pod with devices; the API server takes extended resources with equal limits alone."""
    return pod(name, cpu, "1Gi", on=on, requests=amounts, limits={"cpu": cpu, "memory": "1Gi", **amounts}, **more)


class DeviceStage(Stage):
    """A stage whose pods get devices."""

    async def seen(self, body: Mapping[str, Any]) -> str:
        """Creates a pod, and waits until it is bound. Returns its devices as kubectl shows the annotation."""
        name = body["metadata"]["name"]
        await self.create(body)
        await self.placed(name)
        read = ("get", "pod", name, "-n", self.namespace, "-o", f"jsonpath={ALLOCATED}")
        return await asyncio.to_thread(self.cluster.kubectl, *read)

    async def minors(self, body: Mapping[str, Any]) -> dict[str, list[int]]:
        """Does the same; returns type -> minors."""
        found = json.loads(await self.seen(body))
        return {type_: [each["minor"] for each in listed] for type_, listed in found.items()}


async def test_devices_are_allocated_and_annotated(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    stage = DeviceStage(kube_cluster, namespace, kube_nodes)
    await asyncio.to_thread(kube_cluster.apply, BASE)
    for name, (gpus, labels) in MACHINES.items():
        offered = {
            GPU: str(100 * gpus), WHOLE: str(gpus), RDMA: str(50 * gpus), "koordinator.sh/gpu-core": str(100 * gpus),
            "koordinator.sh/gpu-memory-ratio": str(100 * gpus), "koordinator.sh/gpu-memory": f"{80 * gpus}Gi",
        }  # fmt: skip
        capacity = {"cpu": "16", "memory": "32Gi", **offered}
        await asyncio.to_thread(kube_nodes, name, capacity=capacity, labels=labels)
        await stage.call("POST", DEVICES, device_object(name, gpus))
    await stage.call("POST", TOPOLOGIES, topology_object("gpu-numa", cpus=16, memory_gib=32))
    try:
        async with running(kube_cluster, tmp_path / "system") as system:
            await _shares_wholes_and_multiples(stage)
            await _joint_allocation(stage)
            await _partitions(stage)
            await _below_one_numa_node(stage)
            drawing = await koord(system, "devices", "gpu-plain")
            assert f"{namespace}/share 50 %" in drawing
            why = await koord(system, "why", "device", "gpu-plain/gpu/0")
            assert why.startswith("gpu-plain/gpu/0 (GPU-gpu-plain-0): it is healthy since ")
            assert f"{namespace}/share has it since " in why
            await koord(system, "audit", "verify")
    finally:
        await stage.call("DELETE", f"{TOPOLOGIES}/gpu-numa")
        for name in MACHINES:
            await stage.call("DELETE", f"{DEVICES}/{name}")


async def _shares_wholes_and_multiples(stage: DeviceStage) -> None:
    """Checks half a GPU to the letter, a whole one, two as `nvidia.com/gpu`, and a pod for which none is left."""
    assert await stage.seen(requesting("share", "gpu-plain", {GPU: "50"})) == (
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"40Gi",'
        '"koordinator.sh/gpu-memory-ratio":"50"},"id":"GPU-gpu-plain-0"}]}'
    )
    assert await stage.minors(requesting("two", "gpu-plain", {WHOLE: "2"})) == {"gpu": [2, 3]}
    assert await stage.minors(requesting("whole", "gpu-plain", {GPU: "100"})) == {"gpu": [1]}
    await stage.create(requesting("late", "gpu-plain", {GPU: "100"}))
    assert "Insufficient" in await stage.unschedulable("late")
    await stage.remove("two")
    assert await stage.placed("late") == "gpu-plain", "cards that are free again are given to the pod that waits"
    await stage.remove("late")


async def _joint_allocation(stage: DeviceStage) -> None:
    """Checks two GPUs with the network card below their switch."""
    together = {JOINT: {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}}
    amounts = {GPU: "200", RDMA: "100"}
    found = await stage.minors(requesting("joint", "gpu-plain", amounts, annotations=together))
    assert found == {"gpu": [2, 3], "rdma": [1]}


async def _partitions(stage: DeviceStage) -> None:
    """Checks partitions of the built-in table: beside one GPU in use, the pair that keeps the larger ones free."""
    restricted = {PARTITION: {"allocatePolicy": "Restricted"}}

    def body(name: str, gpus: int) -> dict[str, Any]:
        return requesting(name, "gpu-h100", {GPU: str(100 * gpus)}, annotations=restricted)

    assert await stage.minors(body("one", 1)) == {"gpu": [0]}
    assert await stage.minors(body("pair", 2)) == {"gpu": [2, 3]}
    await stage.create(body("three", 3))
    assert "Unsupported number of GPU requests" in await stage.unschedulable("three")
    assert await stage.minors(body("four", 4)) == {"gpu": [4, 5, 6, 7]}


async def _below_one_numa_node(stage: DeviceStage) -> None:
    """Checks that GPUs come from the NUMA node with free CPUs, and that CPUs and GPUs apart are not enough."""
    await stage.create(pod("cpus", "6", "1Gi", on="gpu-numa"))
    assert _numas((await stage.allocation("cpus"))["numaNodeResources"]) == [0]
    assert await stage.minors(requesting("beside", "gpu-numa", {GPU: "200"}, cpu="4")) == {"gpu": [4, 5]}
    assert _numas((await stage.allocation("beside"))["numaNodeResources"]) == [1]
    await stage.create(requesting("apart", "gpu-numa", {GPU: "400"}, cpu="4"))
    assert "NUMA" in await stage.unschedulable("apart"), "four cards are free at NUMA node 0, and two CPUs"


def _numas(zones: Sequence[Mapping[str, Any]]) -> list[int]:
    return [each["node"] for each in zones]
