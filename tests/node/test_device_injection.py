"""Devices in real containers: from a recorded inventory of a node over the Device object, the webhook and the
scheduler to the environment, devices and mounts that a program in a container of containerd sees.

No card is there: the inventory is a file of a device daemon and a tree like sysfs, and its character devices have the
numbers of /dev/null and /dev/zero.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cli.dev.node.kubelet_node import RealNode
from services.node_agent.runtime_hooks.gpu_environment import LOCKS
from shared.kube.system_annotations import DEVICE_ALLOCATED
from tests.node.container_view import KEY, ContainerView, view_of
from tests.node.koordstream_on_node import Site, site
from tests.node.pod_bodies import pod
from tests.support.sysfs_trees import link, put, rdma_card
from tests.support.waiting import in_thread, until, wait_until

GPU_BYTES = 80 * 2**30
CARD = "0000:1f:00.0"
NULL, ZERO = "1:3", "1:5"
PROVIDER = "koordinator.sh/gpu-isolation-provider"
FEATURES = ("Accelerators", "RDMADevices", "GPUEnvInject", "RDMADeviceInject", "HamiCoreVGPUMonitor")
SPACE = "default"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


def _inventory(folder: Path) -> None:
    """Writes two GPUs as a device daemon does, and an RDMA card and its drivers' devices into a tree like sysfs."""
    gpus = [
        {
            "vendor": "nvidia", "model": "H100", "uuid": f"GPU-{minor}", "minor": str(minor),
            "resources": {"gpu-core": "100", "gpu-memory": "80Gi"},
            "topology": {"socketID": "0", "nodeID": "0", "pcieID": f"pci0000:{minor}", "busID": f"0000:0{minor}:00.0"},
            "status": {"healthy": True},
        }
        for minor in (0, 1)
    ]  # fmt: skip
    put(folder / "infos/gpus", json.dumps(gpus))
    sys = folder / "sys"
    for entry in Path("/sys").iterdir():
        if entry.name not in {"bus", "class", "devices"}:
            link(sys / entry.name, entry)
    (sys / "devices").mkdir()
    for entry in Path("/sys/devices").iterdir():
        link(sys / "devices" / entry.name, entry)
    for entry in Path("/sys/class").iterdir():
        if entry.name not in {"misc", "infiniband"}:
            link(sys / "class" / entry.name, entry)
    card = rdma_card(sys, f"pci0000:1e/{CARD}", "mlx5_0")
    put(card / "infiniband_verbs/uverbs0/dev", f"{NULL}\n")
    put(sys / "class/misc/rdma_cm/dev", f"{ZERO}\n")


@pytest.fixture(scope="module")
def locks() -> Any:
    """HAMi-core's folder of locks, which its installation makes on a node."""
    folder = Path(LOCKS)
    made = not folder.exists()
    folder.mkdir(exist_ok=True)
    yield
    if made:
        folder.rmdir()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(real_node: RealNode, locks: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    _inventory(folder)
    put(folder / "vgpu/libvgpu.so", "the library of HAMi-core")
    real_node.cluster.api.call(
        "PATCH", f"/api/v1/nodes/{real_node.name}", {"metadata": {"labels": {PROVIDER: "HAMi-core"}}}
    )
    agent = {
        "FEATURES": ",".join(f"{name}=true" for name in FEATURES),
        "SYS_ROOT": str(folder / "sys"),
        "DEVICE_INFOS": str(folder / "infos"),
        "NRI_SOCKET": str(real_node.folder / "nri.sock"),
        "HAMI_CORE_LIBRARY": str(folder / "vgpu/libvgpu.so"),
    }
    more = {"slo-controller": {"KOORD_SLO_CONTROLLER_SHARED_GPUS": "true"}, "device-discovery": {}}
    async with site(real_node, folder, agent, more) as running:

        async def amounts() -> dict[str, str]:
            return dict(real_node.status().get("allocatable", {}))

        def offers(found: dict[str, str]) -> bool:
            offered = {
                "koordinator.sh/gpu-core": "200",
                "koordinator.sh/rdma": "100",
                "koordinator.sh/gpu.shared": "200",
            }
            return offered.items() <= found.items()

        await until(amounts, "devices of the node", holds=offers)
        yield running


def _body(name: str, requests: dict[str, str], labels: dict[str, str] | None = None) -> dict[str, Any]:
    body = pod(
        name, requests={"cpu": "10m"} | requests, limits=requests, labels=labels, schedulerName="koord-scheduler"
    )
    source = {"fieldRef": {"fieldPath": f"metadata.annotations['{DEVICE_ALLOCATED}']"}}
    body["spec"]["containers"][0]["env"] = [{"name": KEY, "valueFrom": source}]
    return body


async def _run(there: Site, body: dict[str, Any]) -> tuple[dict[str, Any], ContainerView]:
    """Creates a pod; returns it and the view of its container once that runs."""
    made = await there.created(SPACE, body)
    runs = await there.running(SPACE, made["metadata"]["name"])
    return runs, await asyncio.to_thread(view_of, there.node, made["metadata"]["uid"])


async def _gone(there: Site, name: str) -> None:
    path = f"/api/v1/namespaces/{SPACE}/pods/{name}"
    await there.call("DELETE", path)
    await until(lambda: there.get(path), f"removal of {name}", holds=lambda found: found is None)


def _allocated(found: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(found["metadata"]["annotations"][DEVICE_ALLOCATED])
    return read


async def test_a_program_sees_the_gpu_that_the_scheduler_gave_its_pod_and_the_annotation(there: Site) -> None:
    first, one = await _run(there, _body("whole-1", {"koordinator.sh/gpu": "100"}))
    second, two = await _run(there, _body("whole-2", {"koordinator.sh/gpu": "100"}))
    minors = [str(_allocated(found)["gpu"][0]["minor"]) for found in (first, second)]
    assert sorted(minors) == ["0", "1"]
    assert [view.environment["NVIDIA_VISIBLE_DEVICES"] for view in (one, two)] == minors
    assert [json.loads(view.environment[KEY]) for view in (one, two)] == [_allocated(first), _allocated(second)]
    assert "LD_PRELOAD" not in one.environment, "a whole GPU needs no isolation"
    for name in ("whole-1", "whole-2"):
        await _gone(there, name)


async def test_a_share_of_a_gpu_is_limited_by_hami_core_with_its_library_and_its_folder(there: Site) -> None:
    requests = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "25"}
    found, view = await _run(there, _body("share", requests, {PROVIDER: "HAMi-core"}))
    vgpu = there.folder / "vgpu"
    container = f"{found['metadata']['uid']}_main"
    assert {name: view.environment.get(name) for name in HAMI} == {
        "CUDA_DEVICE_MEMORY_LIMIT": str(GPU_BYTES // 4),
        "CUDA_DEVICE_SM_LIMIT": "50",
        "LD_PRELOAD": f"{vgpu}/libvgpu.so",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{vgpu}/{container}.cache",
    }
    assert Path(f"{view.root}{vgpu}/libvgpu.so").read_text() == "the library of HAMi-core"
    assert view.mounts[LOCKS].endswith(LOCKS)
    Path(f"{view.root}{vgpu}/{container}.cache").write_text("usage")
    assert (vgpu / "containers" / container / f"{container}.cache").read_text() == "usage"
    await _gone(there, "share")


HAMI = ("CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT", "LD_PRELOAD", "CUDA_DEVICE_MEMORY_SHARED_CACHE")


async def test_the_devices_of_an_rdma_card_are_in_the_container_and_nowhere_else(there: Site) -> None:
    found, view = await _run(there, _body("rdma", {"koordinator.sh/rdma": "100"}))
    assert _allocated(found)["rdma"][0]["id"] == CARD
    assert view.char_device("/dev/infiniband/uverbs0") == (1, 3, 0o666)
    assert view.char_device("/dev/infiniband/rdma_cm") == (1, 5, 0o666)
    assert "NVIDIA_VISIBLE_DEVICES" not in view.environment
    plain, other = await _run(there, _body("plain", {}) | {})
    assert DEVICE_ALLOCATED not in plain["metadata"].get("annotations", {})
    assert other.char_device("/dev/infiniband/uverbs0") is None
    for name in ("rdma", "plain"):
        await _gone(there, name)


def _runtimes(node: RealNode) -> list[int]:
    """Returns the pids of the node's containerd."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                ours = f"{node.folder}/containerd.toml" in (process / "cmdline").read_text()
                if ours and (process / "exe").readlink().name == "containerd":
                    found.append(int(process.name))
    assert found
    return found


async def test_after_a_restart_of_the_runtime_the_agent_connects_again(there: Site) -> None:
    containerd = there.node.containerd
    for pid in _runtimes(there.node):
        os.kill(pid, signal.SIGKILL)
    await until(in_thread(lambda: not containerd.running), "end of containerd")
    await asyncio.to_thread(containerd.start)
    log = there.folder / "logs" / "node-agent.log"
    await asyncio.to_thread(
        wait_until,
        lambda: log.read_text().count("hooks are applied to containers before they start") >= 2,
        "second connection",
    )
    found, view = await _run(there, _body("again", {"koordinator.sh/gpu": "100"}))
    assert view.environment["NVIDIA_VISIBLE_DEVICES"] == str(_allocated(found)["gpu"][0]["minor"])
    await _gone(there, "again")
