"""Requests for devices on a real API server, from the webhook over the scheduler to the annotation that agents read, and
the refusals of both.
"""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cli.dev.kube_client import ApiRefused
from cli.dev.local_control_plane import Cluster
from cli.processes.free_ports import free_port
from shared.kube.system_annotations import DEVICE_ALLOCATED
from tests.cluster.fixtures import MakeNodes
from tests.e2e.stage import BASE, Stage, pod
from tests.support.kube_system import running
from tests.support.waiting import in_thread, until

K8S = Path(__file__).parents[2] / "k8s"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/koordstream-webhooks"
GPU, CORE, RATIO = "koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"
MEMORY, SHARED, RDMA = "koordinator.sh/gpu-memory", "koordinator.sh/gpu.shared", "koordinator.sh/rdma"
PROVIDER = "koordinator.sh/gpu-isolation-provider"
NODE = "gpu-1"
AMOUNTS = {
    CORE: "400", RATIO: "400", MEMORY: "320Gi", GPU: "400", SHARED: "400", RDMA: "200", "nvidia.com/gpu": "4",
}  # fmt: skip
OF_ISOLATORS = {
    "hami.io/vgpu-time": "1",
    "cambricon.com/dsmlu.lock": "{}",
    "metax-tech.com/gpu-devices-allocated": "[]",
    "huawei.com/Ascend310P": "Ascend310P-0",
}

ACCEPTED: Mapping[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "whole": ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}, {CORE: "100", RATIO: "100", MEMORY: "80Gi"}),
    "half": ({GPU: "50"}, {CORE: "50", RATIO: "50", SHARED: "1"}, {CORE: "50", RATIO: "50", MEMORY: "40Gi"}),
    "parts": ({CORE: "30", RATIO: "25"}, {CORE: "30", RATIO: "25", SHARED: "1"}, {CORE: "30", RATIO: "25", MEMORY: "20Gi"}),
    "memory": ({MEMORY: "8Gi"}, {MEMORY: "8Gi", SHARED: "1"}, {RATIO: "10", MEMORY: "8Gi"}),
}  # fmt: skip
"""Name of a pod -> its requests, those that the webhook stores, and the amounts that it gets of one GPU."""

REFUSED: Mapping[str, tuple[dict[str, str], str, str]] = {
    "one-and-a-half": ({GPU: "150"}, "invalid resource device requests", "no node can satisfy"),
    "both-vendors": ({"nvidia.com/gpu": "1", GPU: "50"}, "invalid resource device requests", "no node can satisfy"),
    "core-alone": ({CORE: "100"}, "invalid resource device requests", "give exactly one of"),
    "both-memories": ({MEMORY: "8Gi", RATIO: "50"}, "invalid resource device requests", "give exactly one of"),
    "uneven": ({RATIO: "100", SHARED: "3"}, "invalid resource device requests", "do not divide"),
    "card-and-a-half": ({RDMA: "150"}, "invalid resource unit", "no node can satisfy"),
}
"""Name of a pod -> its requests, a part of the scheduler's text, and a part of the webhook's text."""

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]


def device() -> dict[str, Any]:
    gpus = [
        {
            "type": "gpu", "minor": minor, "id": f"GPU-{minor}", "health": True,
            "topology": {"socketID": 0, "nodeID": 0, "pcieID": "pcie-0"},
            "resources": {CORE: "100", RATIO: "100", MEMORY: "80Gi"},
        }
        for minor in range(4)
    ]  # fmt: skip
    cards = [
        {
            "type": "rdma", "minor": minor, "id": f"0000:1{minor}:00.0", "health": True,
            "topology": {"socketID": 0, "nodeID": 0, "pcieID": "pcie-0"}, "resources": {RDMA: "100"},
        }
        for minor in range(2)
    ]  # fmt: skip
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": NODE},
        "spec": {"devices": [*gpus, *cards]},
    }


def body(name: str, requests: dict[str, str], **more: Any) -> dict[str, Any]:
    return pod(name, "100m", "64Mi", requests=requests, limits=requests, **more)


def webhooks(gates: str = "") -> dict[str, dict[str, str]]:
    port = free_port()
    return {
        "gateway": {
            "KOORD_GATEWAY_WEBHOOK_LISTEN": f"127.0.0.1:{port}",
            "KOORD_GATEWAY_WEBHOOK_URL": f"https://127.0.0.1:{port}",
            "KOORD_GATEWAY_WEBHOOK_POLL_INTERVAL_S": "0.5",
            "KOORD_GATEWAY_WEBHOOK_FAILURE_POLICY": "Fail",
            "KOORD_GATEWAY_WEBHOOK_GATES": gates,
        }
    }


async def until_served(stage: Stage, refused: dict[str, str] | None = None) -> None:
    """Waits until the API server calls the webhooks that run now: for a pod that they change, or refuse."""
    probe = body("probe", refused or {GPU: "50"})

    def served() -> bool:
        try:
            made = stage.cluster.api.call("POST", f"{stage.path()}?dryRun=All", probe)
        except ApiRefused as error:
            return refused is not None and "no node can satisfy" in str(error)
        return refused is None and SHARED in made["spec"]["containers"][0]["resources"]["requests"]

    await until(in_thread(served), "webhooks")


async def test_webhook_and_scheduler_agree_about_requests_for_devices(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    stage = Stage(kube_cluster, namespace, kube_nodes)
    await asyncio.to_thread(kube_cluster.apply, BASE)
    await asyncio.to_thread(kube_cluster.apply, K8S / "webhooks")
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", **AMOUNTS}
    await asyncio.to_thread(kube_nodes, NODE, capacity=amounts, allocatable=amounts, labels={PROVIDER: "HAMi-core"})
    await stage.call("POST", DEVICES, device())
    try:
        async with running(kube_cluster, tmp_path / "open", webhooks()):
            await until_served(stage)
            for name, (requests, stored, given) in ACCEPTED.items():
                await accepted(stage, name, requests, stored, given)
            await forged(stage)
            for name, (requests, text, _) in REFUSED.items():
                await stage.create(body(name, requests))
                assert text in await stage.unschedulable(name), name
        gates = "ValidatePodDeviceResource=true,RequirePlaceableDevices=true"
        async with running(kube_cluster, tmp_path / "strict", webhooks(gates)):
            await until_served(stage, {RDMA: "150"})
            for name, (requests, _, text) in REFUSED.items():
                with pytest.raises(ApiRefused, match=text):
                    await stage.create(body(f"{name}-again", requests))
            for name, (requests, *_) in ACCEPTED.items():
                await stage.create(body(f"{name}-again", requests))
    finally:
        await stage.call("DELETE", f"{DEVICES}/{NODE}")
        for kind in ("mutating", "validating"):
            await stage.call("DELETE", WEBHOOKS.format(kind))


async def accepted(
    stage: Stage, name: str, requests: dict[str, str], stored: dict[str, str], given: dict[str, str]
) -> None:
    """Checks a pod's way: what the webhook stores, what the scheduler allocates, and what passes through unchanged."""
    await stage.create(body(name, requests, labels={PROVIDER: "HAMi-core"}, annotations=OF_ISOLATORS))
    assert await stage.placed(name) == NODE
    found = await asyncio.to_thread(partial(stage.pod, name))
    devices = {"cpu", "memory"}
    kept = found["spec"]["containers"][0]["resources"]["requests"]
    assert {key: amount for key, amount in kept.items() if key not in devices} == stored, name
    notes = found["metadata"]["annotations"]
    assert OF_ISOLATORS.items() <= notes.items()
    assert found["metadata"]["labels"][PROVIDER] == "HAMi-core"
    (gpu,) = json.loads(notes[DEVICE_ALLOCATED])["gpu"]
    assert gpu["resources"] == given, name
    assert gpu["id"] == f"GPU-{gpu['minor']}"


async def forged(stage: Stage) -> None:
    """Checks that a tenant cannot give itself devices."""
    claim = json.dumps({"gpu": [{"minor": 0, "resources": {CORE: "100"}}]})
    with pytest.raises(ApiRefused, match=DEVICE_ALLOCATED):
        await stage.create(body("forged", {}, annotations={DEVICE_ALLOCATED: claim}))
