"""Devices in real containers: from a recorded inventory of a node over the Device object, the webhook and the
scheduler to the environment, devices and mounts that a program in a container of containerd sees.

No card is there: the inventory is a file of a device daemon and a tree like sysfs, and its character devices have the
numbers of /dev/null and /dev/zero. Nor is resctrl, which is such a tree, too.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from cli.dev.node.kubelet_node import RealNode
from cli.processes.child_process import Process
from services.node_agent.pod_resources.allocated_devices import LIST, ListPodResourcesResponse
from services.node_agent.qos_manager.strategies.resctrl import ANNOTATION
from services.node_agent.runtime_hooks.gpu_environment import LOCKS
from shared.kube.system_annotations import DEVICE_ALLOCATED
from tests.node.container_view import KEY, ContainerView, view_of
from tests.node.hooked_containers import linux_that_the_runtime_records
from tests.node.koordstream_on_node import Site, site
from tests.node.pod_bodies import pod
from tests.support.sysfs_trees import link, put, rdma_card
from tests.support.waiting import in_thread, until, wait_until

GPU_BYTES = 80 * 2**30
CARD = "0000:1f:00.0"
NULL, ZERO = "1:3", "1:5"
PROVIDER = "koordinator.sh/gpu-isolation-provider"
FEATURES = (
    "Accelerators",
    "RDMADevices",
    "GPUEnvInject",
    "RDMADeviceInject",
    "HamiCoreVGPUMonitor",
    "PodResourcesProxy",
    "Resctrl",
)
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
        if entry.name not in {"bus", "class", "devices", "fs"}:
            link(sys / entry.name, entry)
    for entry in Path("/sys/fs").iterdir():
        if entry.name != "resctrl":
            link(sys / "fs" / entry.name, entry)
    put(sys / "fs/resctrl/info/L3/cbm_mask", "7ff\n")
    put(sys / "fs/resctrl/schemata", "    L3:0=7ff;1=7ff\n    MB:0=100;1=100\n")
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
        "POD_RESOURCES_PROXY": str(folder / "proxy"),
    }
    more: dict[str, dict[str, str]] = {"slo-controller": {}, "device-discovery": {}}
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


async def test_a_card_that_the_node_lost_is_missing_in_the_container_and_the_agents_log_names_it(there: Site) -> None:
    verbs = there.folder / f"sys/bus/pci/devices/{CARD}/infiniband_verbs"
    verbs.rename(verbs.with_name("gone"))
    try:
        _, view = await _run(there, _body("lost", {"koordinator.sh/rdma": "100"}))
    finally:
        verbs.with_name("gone").rename(verbs)
    assert view.char_device("/dev/infiniband/uverbs0") is None
    log = (there.folder / "logs/node-agent.log").read_text()
    assert (
        f"hook RDMADeviceInject for container main of pod {SPACE}/lost: PCI function {CARD} has no verbs device" in log
    )
    await _gone(there, "lost")


async def test_with_the_policy_fail_a_container_whose_device_is_lost_does_not_start_and_its_pod_shows_why(
    there: Site,
) -> None:
    verbs = there.folder / f"sys/bus/pci/devices/{CARD}/infiniband_verbs"
    path = f"/api/v1/namespaces/{SPACE}/pods/strict"
    await _agent_again(there, KOORD_NODE_AGENT_HOOK_FAILURE_POLICY="Fail")
    verbs.rename(verbs.with_name("gone"))
    try:
        await there.created(SPACE, _body("strict", {"koordinator.sh/rdma": "100"}))

        async def why() -> str:
            statuses = (await there.call("GET", path))["status"].get("containerStatuses", [])
            return " ".join(each["state"].get("waiting", {}).get("message", "") for each in statuses)

        await until(why, "failure of the container", holds=lambda text: "has no verbs device" in text)
    finally:
        verbs.with_name("gone").rename(verbs)
    await there.running(SPACE, "strict")
    await _gone(there, "strict")
    await _agent_again(there, KOORD_NODE_AGENT_HOOK_FAILURE_POLICY="Ignore")


@pytest.mark.parametrize("until_removed", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_the_resctrl_group_of_a_pod_is_in_the_runtimes_specification_and_goes_with_the_pod(
    there: Site, *, until_removed: bool
) -> None:
    """The group goes with the pod's sandbox, or ten seconds after its cgroup: too long for the short form."""
    body = _body("cache", {})
    body["metadata"]["annotations"] = {ANNOTATION: '{"llc":{"schemata":{"range":[0,50]}}}'}
    found, _ = await _run(there, body)
    group = there.folder / f"sys/fs/resctrl/koordlet-{found['metadata']['uid']}"
    assert (group / "schemata").read_text() == "L3:0=3f;1=3f;\n"
    container = found["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    assert linux_that_the_runtime_records(there.node, container)["intelRdt"]["closID"] == group.name
    await _gone(there, "cache")

    def removed() -> bool:
        for file in group.glob("*"):
            file.unlink(missing_ok=True)  # the kernel's own files do not keep a group from being removed
        return not group.exists()

    if until_removed:
        await until(in_thread(removed), "removal of the group")


async def _agent_again(there: Site, **env: str) -> None:
    """Starts the agent again with other settings, and waits until its hooks are applied."""
    log, unit = there.folder / "logs/node-agent.log", there.system.supervisor.units["node-agent"]
    before = log.read_text().count(APPLIED)
    unit.process.env = {**(unit.process.env or {}), **env}
    there.system.supervisor.kill("node-agent")
    await asyncio.to_thread(wait_until, lambda: log.read_text().count(APPLIED) > before, "hooks of the new agent")


APPLIED = "hooks are applied to containers before they start"


async def _killed(node: RealNode, program: str, process: Process) -> None:
    """Kills a program of the node, which is a child of the process that looks after it."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                ours = f"--config={node.folder}/" in (entry / "cmdline").read_text()
                if ours and (entry / "exe").readlink().name == program:
                    pids.append(int(entry.name))
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    await until(in_thread(lambda: not process.running), f"end of {program}")


GET, ALLOCATABLE = "/v1.PodResourcesLister/Get", "/v1.PodResourcesLister/GetAllocatableResources"


async def _listed(channel: Any, pod_name: str) -> dict[str, list[str]]:
    """Returns the devices of a pod's container by resource."""
    found = ListPodResourcesResponse.FromString(await channel.unary_unary(LIST)(b"", wait_for_ready=True))
    (listed,) = (each for each in found.pod_resources if each.name == pod_name)
    return {each.resource_name: list(each.device_ids) for each in listed.containers[0].devices}


async def _failure(channel: Any, method: str, request: bytes = b"") -> tuple[Any, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await channel.unary_unary(method)(request)
    return failed.value.code(), str(failed.value.details())


async def test_the_pod_resources_api_of_the_kubelet_has_our_devices_and_its_own_errors(there: Site) -> None:
    requests = {"koordinator.sh/gpu": "100", "koordinator.sh/rdma": "100"}
    found, _ = await _run(there, _body("listed", requests))
    sockets = (there.node.folder / "kubelet/pod-resources/kubelet.sock", there.folder / "proxy/kubelet.sock")
    async with (
        grpc.aio.insecure_channel(f"unix:{sockets[0]}") as kubelet,
        grpc.aio.insecure_channel(f"unix:{sockets[1]}") as proxy,
    ):
        assert await _listed(kubelet, "listed") == {}
        gpu = _allocated(found)["gpu"][0]["id"]

        async def answered() -> bool:
            try:
                return await _listed(proxy, "listed") == {"nvidia.com/gpu": [gpu], "koordinator.sh/rdma": [CARD]}
            except (grpc.aio.AioRpcError, ValueError):
                return False  # kubelet has not started, or listed its pods, or the agent has not read them yet

        await until(answered, "devices in the answer of the proxy")
        answers = [await channel.unary_unary(ALLOCATABLE)(b"") for channel in (kubelet, proxy)]
        assert answers[0] == answers[1]
        unknown = b"\x0a\x04nope\x12\x07default"  # pod_name, pod_namespace
        for method, request in ((GET, unknown), ("/v1.PodResourcesLister/Watch", b"")):
            errors = [await _failure(channel, method, request) for channel in (kubelet, proxy)]
            assert errors[0] == errors[1]
        await _killed(there.node, "kubelet", there.node.kubelet)
        assert (await _failure(proxy, LIST))[0] is grpc.StatusCode.UNAVAILABLE
        await asyncio.to_thread(there.node.kubelet.start)
        await until(answered, "answer of the new kubelet")
    await _gone(there, "listed")


async def test_after_a_restart_of_the_runtime_the_agent_connects_again(there: Site) -> None:
    log = there.folder / "logs" / "node-agent.log"
    before = log.read_text().count(APPLIED)
    await _killed(there.node, "containerd", there.node.containerd)
    await asyncio.to_thread(there.node.containerd.start)
    await asyncio.to_thread(
        wait_until,
        lambda: log.read_text().count(APPLIED) > before,
        "second connection",
    )
    found, view = await _run(there, _body("again", {"koordinator.sh/gpu": "100"}))
    assert view.environment["NVIDIA_VISIBLE_DEVICES"] == str(_allocated(found)["gpu"][0]["minor"])
    await _gone(there, "again")
