"""`koord devices` on a real log."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.simulate import kube_objects
from shared.events import Draft
from shared.events.cluster import ObjectObserved
from shared.kube.instants import SECOND, instant_text
from shared.kube.resource_names import DEVICES
from tests.integration.cli.recorded_log import Log, append, run
from tests.integration.cli.recorded_world import begin, write
from tests.support.device_machines import GPU, RDMA, devices, gpu_node, gpu_pod
from tests.support.scheduling_world import World, node

HOUR_NS = 3600 * SECOND
DOCUMENT = (Path(__file__).parents[3] / "docs" / "devices.md").read_text()


def _world() -> World:
    """Half a card, two whole cards with a network card, and a pod that waits."""
    world = World()
    world.now_ns = time.time_ns() - 2 * HOUR_NS
    begin(world, "cluster", "scheduling")
    world.add_node(gpu_node("a", cpu="16"))
    world.add_node(node("plain"))
    world.observe(devices("a"))
    world.add_pod(gpu_pod("half", {GPU: "50"}))
    world.read()
    world.cycles()
    world.add_pod(gpu_pod("two", {GPU: "200", RDMA: "100"}))
    world.read()
    world.cycles()
    world.add_pod(gpu_pod("large", {GPU: "400"}))
    world.read()
    world.cycles()
    return world


@pytest.fixture
async def log(database: str) -> Log:
    await write(await asyncio.to_thread(_world), database)
    await append(database, "cluster", [Draft(devices("a", broken=(1,)))], time.time_ns() - HOUR_NS)
    return Log(database)


async def test_a_node_is_drawn_with_the_shares_of_its_pods(log: Log) -> None:
    result = await run(log, "devices", "a")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "a: 3 GPUs and 1 unhealthy: 2.5 allocated (83.3 %), 0.5 free",
        "  of the free ones: 0.17 usable, 0.33 stranded by cards 0.33",
        "DEVICE                           USED  PODS",
        "gpu 0   |aaaaaaaaaa··········|   50 %  a d/half 50 %",
        "gpu 1   |xxxxxxxxxxxxxxxxxxxx|    0 %  unhealthy",
        "gpu 2   |bbbbbbbbbbbbbbbbbbbb|  100 %  b d/two 100 %",
        "gpu 3   |bbbbbbbbbbbbbbbbbbbb|  100 %  b d/two 100 %",
        "rdma 0  |bbbbbbbbbbbbbbbbbbbb|  100 %  b d/two 100 %",
        "rdma 1  |····················|    0 %",
    ]
    wide = await run(log, "devices", "a", "-o", "wide")
    assert "0     pcie-0  GPU-a-0  a d/half 50 %" in wide.stdout


async def test_the_cluster_is_summed_up_and_nodes_without_devices_are_left_out(log: Log) -> None:
    result = await run(log, "devices", "-A")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "3 GPUs on 1 node and 1 unhealthy: 2.5 allocated (83.3 %), 0.5 free"
    assert lines[-1].split() == ["a", "-", "3", "2.5", "0.5", "0.17", "cards", "0.33", "▄x██"]
    assert "3 pods that request GPUs, of 3 types" in result.stdout
    found = json.loads((await run(log, "devices", "-o", "json")).stdout)
    assert [(each["name"], each["sums"]["allocated"]) for each in found["nodes"]] == [("a", 2.5)]


async def test_without_an_optimum_the_reason_is_printed(log: Log) -> None:
    await append(log.url, "cluster", [Draft(devices("a", broken=(1, 2)))], time.time_ns() - HOUR_NS // 2)
    result = await run(log, "devices")
    assert result.exit_code == 0, result.stderr
    reason = "the placed pods have 2.5 GPUs, and the nodes offer 2 healthy ones; 2 more are unhealthy"
    assert f"  optimum: unknown; {reason}" in result.stdout


async def test_an_earlier_instant_shows_the_devices_of_then(log: Log) -> None:
    before = instant_text(time.time_ns() // SECOND * SECOND - HOUR_NS - 60 * SECOND)
    result = await run(log, "devices", "a", "--at", before, "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["sums"]["unhealthy"] == 0


async def test_a_wrong_name_is_answered_with_those_there_are(log: Log) -> None:
    result = await run(log, "devices", "b")
    assert result.exit_code == 1
    assert "there is no node with a Device 'b'" in result.stderr


def _world_of_the_document(folder: Path) -> World:
    """The node of docs/devices.md with three of its pods; a card fails before the last one, which finds none."""
    files = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", DOCUMENT, re.DOTALL))
    for name, text in files.items():
        (folder / name).write_text(text)
    world = World()
    world.now_ns = time.time_ns() - 2 * HOUR_NS
    begin(world, "cluster", "scheduling")
    nodes = kube_objects.read_nodes(folder / "nodes.yaml")
    for each in nodes:
        world.add_node(each)
    (device,) = kube_objects.read_devices(folder / "nodes.yaml")
    world.observe(ObjectObserved(resource=DEVICES, name="gpu-1", uid="device", object=device))
    pods = {each.metadata.name: each for each in kube_objects.read_pods(folder / "pods.yaml", nodes)}
    for name in ("notebook", "training", "late"):
        if name == "late":
            world.observe(
                ObjectObserved(resource=DEVICES, name="gpu-1", uid="device", object=_without(device, "GPU-1"))
            )
        spec = msgspec.structs.replace(pods[name].spec, scheduler_name="koord-scheduler")
        world.add_pod(msgspec.structs.replace(pods[name], spec=spec))
        world.read()
        world.cycles()
    return world


def _without(device: dict[str, Any], card: str) -> dict[str, Any]:
    """Returns a Device in which a card is unhealthy."""
    cards = [{**each, "health": each["id"] != card} for each in device["spec"]["devices"]]
    return {**device, "spec": {"devices": cards}}


async def test_the_drawing_of_the_document_is_what_the_command_prints(database: str, tmp_path: Path) -> None:
    await write(await asyncio.to_thread(_world_of_the_document, tmp_path), database)
    (printed,) = re.findall(r"```text\n\$ koord devices gpu-1\n(.*?)```", DOCUMENT, re.DOTALL)
    result = await run(Log(database), "devices", "gpu-1")
    assert result.stdout == printed, result.stderr
