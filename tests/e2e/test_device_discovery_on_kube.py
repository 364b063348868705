"""From cards to pods on a real API server: a node's agent lists cards through a compiled NVIDIA library, sysfs and the
file of a device daemon, and reports them over NATS with the node's login; the gateway writes the Device, and puts right
what others change.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from cli.credentials.credentials_folder import env_file, read_env
from cli.dev.kube_client import ApiRefused
from cli.dev.local_control_plane import Cluster
from cli.processes.child_process import Process
from services.node_agent.devices.nvidia_gpus import DRIVER
from shared.agents import subjects
from shared.kube.instants import SECOND
from tests.cluster.fixtures import MakeNodes
from tests.e2e.stage import BASE, Stage, pod
from tests.integration.node_agent.agent_process import an_agent
from tests.support import sysfs_trees
from tests.support.kube_system import System, running
from tests.support.sysfs_trees import ACCELERATOR, KUNLUN, NVIDIA, VGA
from tests.support.waiting import until
from tests.unit.node_agent.device_daemon import vendor_programs
from tests.unit.node_agent.device_daemon.vendor_programs import XPU_SMI
from tests.unit.node_agent.devices import fake_nvml

NODE = "gpu.1"
DEVICE = f"/apis/scheduling.koordinator.sh/v1alpha1/devices/{NODE}"
MODEL = "node.koordinator.sh/gpu-model"
FOUND = "H100-80GB-HBM3"
GPU, RDMA = "koordinator.sh/gpu", "koordinator.sh/rdma"


class Machine:
    """The cards of the node: sysfs, and what the library reads."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.sys, self.cards = folder / "sys", folder / "cards"
        self.infos, self.programs = folder / "infos", folder / "bin"
        self.library = fake_nvml.build(folder)
        for number in range(2):
            sysfs_trees.pci_function(self.sys, sysfs_trees.gpu_path(number), VGA, NVIDIA, driver=DRIVER)
        sysfs_trees.rdma_card(self.sys, "pci0000:16/0000:16:02.0/0000:40:00.0", "mlx5_0")
        self.set(fake_nvml.gpu(0), fake_nvml.gpu(1))

    def set(self, *lines: str) -> None:
        """Replaces what the library finds."""
        beside = self.cards.with_suffix(".new")
        beside.write_text("".join(f"{line}\n" for line in lines))
        beside.replace(self.cards)


@asynccontextmanager
async def listing(machine: Machine, folder: Path) -> AsyncIterator[None]:
    """Runs the device daemon of a node that has an XPU."""
    sysfs_trees.pci_function(machine.sys, "pci0000:3b/0000:3b:00.0", ACCELERATOR, KUNLUN)
    answers = {name: text.splitlines()[0] for name, text in XPU_SMI.items()}
    vendor_programs.program(machine.programs, "xpu_smi", answers)
    env = os.environ | {
        "PATH": f"{machine.programs}:{os.environ['PATH']}",
        "KOORD_DEVICE_DAEMON_SYS_ROOT": str(machine.sys),
    }
    flags = ["--prints-output-file", str(machine.infos / "ic-device"), "--sleep-interval", "1h"]
    command = [sys.executable, "-P", "-m", "cli", "run", "device-daemon", *flags]
    daemon = Process("device-daemon", command, folder / "daemon.log", env=env)
    daemon.start()
    try:
        yield
    finally:
        await asyncio.to_thread(daemon.stop)


@asynccontextmanager
async def reporting(system: System, machine: Machine, folder: Path) -> AsyncIterator[None]:
    """Runs the node's agent with its login."""
    login = read_env(env_file(Path(system.endpoints.credentials), subjects.token(NODE), node=True))
    process = an_agent(
        folder,
        None,
        **login,
        FAKE_NVML=str(machine.cards),
        KOORD_NODE_AGENT_NODE=NODE,
        KOORD_NODE_AGENT_TRANSPORT="nats",
        KOORD_NODE_AGENT_FEATURES="Accelerators=true,RDMADevices=true",
        KOORD_NODE_AGENT_NVML=machine.library,
        KOORD_NODE_AGENT_SYS_ROOT=str(machine.sys),
        KOORD_NODE_AGENT_DEVICE_INFOS=str(machine.infos),
    )
    process.start()
    try:
        yield
    finally:
        await asyncio.to_thread(process.stop)


class Watched:
    """The node and its Device on the API server."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def device(self) -> dict[str, Any]:
        """Returns the Device; an empty object without one."""
        try:
            return await self.stage.call("GET", DEVICE)
        except ApiRefused:
            return {}

    async def cards(self) -> dict[str, bool]:
        """Returns `TYPE/MINOR` -> health, by the Device."""
        listed = (await self.device()).get("spec", {}).get("devices", [])
        return {f"{each['type']}/{each['minor']}": each["health"] for each in listed}

    async def ids(self) -> set[str]:
        """Returns the ids of the GPUs and the like, by the Device."""
        listed = (await self.device()).get("spec", {}).get("devices", [])
        return {each["id"] for each in listed if each["type"] == "gpu"}

    async def label(self) -> str:
        """Returns the Device's label of the model."""
        return str((await self.device()).get("metadata", {}).get("labels", {}).get(MODEL, ""))

    async def models(self) -> tuple[str, str]:
        """Returns the labels of the model on the Device and on the node."""
        return await self.label(), str((await self.node())["metadata"].get("labels", {}).get(MODEL, ""))

    async def node(self) -> dict[str, Any]:
        """Returns the node."""
        return await self.stage.call("GET", f"/api/v1/nodes/{NODE}")

    async def offers(self) -> tuple[str | None, str | None]:
        """Returns the GPUs and network cards that the node can allocate, in percent."""
        allocatable = (await self.node())["status"]["allocatable"]
        return allocatable.get(GPU), allocatable.get(RDMA)


def equal(expected: object) -> Callable[[object], bool]:
    return lambda found: found == expected


async def test_reported_cards_become_a_device_that_is_kept_and_a_failed_card_takes_no_pod(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    stage, machine = Stage(kube_cluster, namespace, kube_nodes), Machine(tmp_path / "machine")
    await asyncio.to_thread(kube_cluster.apply, BASE)
    await asyncio.to_thread(kube_nodes, NODE, capacity={"cpu": "16", "memory": "32Gi"})
    services = ["slo-controller", "device-discovery"]
    async with (
        running(kube_cluster, tmp_path / "system", more=services, nodes=[NODE]) as system,
        reporting(system, machine, tmp_path),
    ):
        on = Watched(stage)
        await until(on.cards, holds=equal({"gpu/0": True, "gpu/1": True, "rdma/0": True}))
        await until(on.offers, holds=equal(("200", "100")))
        await until(on.models, holds=equal((FOUND, FOUND)))
        assert (await on.device())["metadata"]["ownerReferences"][0]["uid"] == (await on.node())["metadata"]["uid"]
        await _drift_is_repaired(on)
        await stage.create(gpu_pod("first"))
        await stage.placed("first")
        taken = (await _allocated(stage, "first"))[0]
        machine.set(fake_nvml.gpu(0), fake_nvml.gpu(1), f"xid GPU-{1 - taken} 79")
        await until(on.cards, holds=equal({f"gpu/{taken}": True, f"gpu/{1 - taken}": False, "rdma/0": True}))
        print(f"unschedulable {await _delay_s(system, 'DeviceHealthChanged'):.3f} s after the report")
        await stage.create(gpu_pod("late"))
        await stage.unschedulable("late")
        await until(on.offers, holds=equal(("100", "100")))
        sysfs_trees.remove_function(machine.sys, sysfs_trees.gpu_address(1 - taken), DRIVER)
        machine.set(fake_nvml.gpu(taken))
        await until(on.cards, holds=equal({f"gpu/{taken}": True, "rdma/0": True}))
        print(f"gone from the Device {await _delay_s(system, 'DeviceDisappeared'):.3f} s after the report")
        assert not stage.pod("late")["spec"].get("nodeName")
        before = await on.ids()
        async with listing(machine, tmp_path):
            await until(on.ids, holds=equal({"xpu-0"}))
        await until(on.ids, holds=equal(before))


async def _drift_is_repaired(on: Watched) -> None:
    """Others edit the Device and the node's label, and delete the Device."""
    before = await on.device()
    edited = [{**each, "health": False} for each in before["spec"]["devices"]]
    await on.stage.call("PATCH", DEVICE, {"metadata": {"labels": {MODEL: "edited"}}, "spec": {"devices": edited}})
    await until(on.label, holds=equal(FOUND))
    await until(on.cards, holds=lambda cards: bool(cards) and all(cards.values()))
    await on.stage.call("DELETE", DEVICE)

    async def made_again() -> bool:
        uid = (await on.device()).get("metadata", {}).get("uid", "")
        return uid not in ("", before["metadata"]["uid"])

    await until(made_again)
    assert (await on.device())["spec"] == before["spec"]
    await on.stage.call("PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {MODEL: "edited"}}})

    async def node_label() -> str:
        return str((await on.node())["metadata"]["labels"].get(MODEL))

    await until(node_label, holds=equal(FOUND))


def gpu_pod(name: str) -> dict[str, Any]:
    """Returns a pod that requests a whole GPU."""
    body = pod(name, "1", "1Gi")
    resources = body["spec"]["containers"][0]["resources"]
    for amounts in (resources["requests"], resources.setdefault("limits", {})):
        amounts[GPU] = "100"
    return body


async def _allocated(stage: Stage, name: str) -> list[int]:
    """Returns the minors of a pod's GPUs."""
    annotations = (await asyncio.to_thread(stage.pod, name))["metadata"]["annotations"]
    return [each["minor"] for each in json.loads(annotations["scheduling.koordinator.sh/device-allocated"])["gpu"]]


async def _delay_s(system: System, kind: str) -> float:
    """Returns the seconds from the newest report that led to such an event until the log has the Device of it."""
    rows = [row async for row in system.log.rows(context="devices-0", kind=kind)]
    event = msgspec.json.decode(rows[-1].data)
    key, number = event["device"].removeprefix(f"{NODE}/"), event["found"]["minor"]

    async def observed() -> float:
        async for row in system.log.rows(context="cluster", kind="ObjectObserved"):
            body = msgspec.json.decode(row.data)
            if body["resource"].startswith("devices.") and row.at.timestamp() * SECOND > event["at_ns"]:
                cards = {
                    each["minor"]: each["health"] for each in body["object"]["spec"]["devices"] if each["type"] == "gpu"
                }
                if not cards.get(number, False):
                    return float(row.at.timestamp() - event["at_ns"] / SECOND)
        return 0.0

    return float(await until(observed, f"the Device without {key}"))
