"""`koord why device` on a real log: when a card disappeared, and which pods had it then and since."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shared.events import Draft
from shared.events.cluster import PodBound, PodDeleted
from shared.events.devices import (
    DeviceAppeared,
    DeviceChanged,
    DeviceDisappeared,
    DeviceHealthChanged,
    DeviceUser,
)
from shared.kube.instants import SECOND, instant_ns, millisecond_text
from shared.kube.system_annotations import DEVICE_ALLOCATED
from tests.integration.cli.recorded_log import Log, append, run
from tests.integration.cli.recorded_world import begin, write
from tests.support.device_machines import GPU, devices, gpu_node, gpu_pod
from tests.support.discovery_log import gpu, sick
from tests.support.scheduling_world import World, node

BEGAN_NS = time.time_ns() // SECOND * SECOND - 3600 * SECOND
HALF = '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory-ratio":"50"}}]}'


def _world() -> World:
    """A node with four cards, of which the first is half a pod's, and one without."""
    world = World()
    world.now_ns = BEGAN_NS
    begin(world, "cluster", "scheduling")
    world.add_node(gpu_node("a"))
    world.add_node(node("plain"))
    world.observe(devices("a"))
    world.add_pod(gpu_pod("half", {GPU: "50"}))
    world.read()
    world.cycles()
    return world


def at(second: int) -> int:
    return BEGAN_NS + second * SECOND


def text(second: int) -> str:
    return millisecond_text(at(second))


@pytest.fixture
async def log(database: str) -> Log:
    await write(await asyncio.to_thread(_world), database)
    bound = [
        Draft(PodBound(pod="d/early", pod_uid="early", node="a", allocations={DEVICE_ALLOCATED: HALF})),
        Draft(PodBound(pod="d/other", pod_uid="other", node="b", allocations={DEVICE_ALLOCATED: HALF})),
        Draft(PodBound(pod="d/half", pod_uid="half", node="a", allocations={DEVICE_ALLOCATED: HALF})),
        Draft(PodDeleted(pod="d/early", pod_uid="early")),
    ]
    await append(database, "cluster", bound, at(30))
    common: dict[str, Any] = {"device": "a/gpu/0", "node": "a", "boot": "b"}
    half = (DeviceUser("d/half", "half"),)
    await append(
        database,
        "devices-0",
        [
            Draft(DeviceAppeared(**common, number=1, at_ns=at(0), found=gpu(0), health_since_ns=at(0))),
            Draft(DeviceChanged(**common, number=2, at_ns=at(10), found=replace(gpu(0), numa=1), changed=("numa",), health_since_ns=at(0))),
            Draft(DeviceHealthChanged(**common, number=3, at_ns=at(20), found=replace(sick(0), numa=1), health_since_ns=at(20), reason="Xid79", message="fallen off the bus", pods=half)),
            Draft(DeviceDisappeared(**common, number=4, at_ns=at(40), why="missing", found=replace(sick(0), numa=1), pods=half)),
            Draft(DeviceAppeared(device="a/gpu/1", node="a", boot="b", number=1, at_ns=at(0), found=gpu(1), health_since_ns=at(0))),
        ],
        at(50),
    )  # fmt: skip
    return Log(database)


async def test_a_card_that_disappeared_is_shown_with_its_instant_and_the_pods_that_had_it(log: Log) -> None:
    result = await run(log, "why", "device", "a/gpu/0")
    assert result.exit_code == 0, result.stderr
    first, amounts, then, *rest = result.stdout.splitlines()
    assert first == f"a/gpu/0 (GPU-0): it disappeared at {text(40)}: the inventory of its node no longer has it"
    assert amounts == (
        "  gpu-core 100, gpu-memory 80Gi, gpu-memory-ratio 100; NUMA node 1; PCIe root pci0000:3a; PCI 0000:3b:00.0"
    )
    assert then == "  pods that had it then: d/half"
    assert f"  d/early had it since {text(30)} until {text(30)}: gpu-core 50, gpu-memory-ratio 50" in rest
    assert f"  d/half has it since {text(30)}: gpu-core 50, gpu-memory-ratio 50" in rest
    assert not any("d/other" in line for line in rest), "it is bound to another node"
    steps = [(line.split()[0], line.partition("  devices-0/")[2].split(maxsplit=1)[1]) for line in rest[-4:]]
    assert steps == [
        (text(0), "it appeared"),
        (text(10), "it changed: numa 0 -> 1"),
        (text(20), "it became unhealthy: Xid79: fallen off the bus; d/half had it"),
        (text(40), "it disappeared: the inventory of its node no longer has it; d/half had it"),
    ]


async def test_the_same_is_printed_for_programs_and_found_without_the_kind(log: Log) -> None:
    found = json.loads((await run(log, "why", "a/gpu/0", "-o", "json")).stdout)
    assert (found["state"], found["since"], found["affected"]) == ("gone", text(40), ["d/half"])
    assert [(each["pod"], each["since"], each["until"]) for each in found["pods"]] == [
        ("d/early", text(30), text(30)),
        ("d/half", text(30), ""),
    ]
    assert [each["recorded_at"] for each in found["steps"]] == [text(50)] * 4
    healthy = json.loads((await run(log, "why", "device/a/gpu/1", "-o", "json")).stdout)
    assert (healthy["state"], healthy["since"], healthy["pods"]) == ("healthy", text(0), [])


async def test_a_device_that_only_its_device_object_has_is_explained_from_that(log: Log, database: str) -> None:
    await append(database, "cluster", [Draft(devices("a", broken=(2,), rdma=1))], at(60))
    found = json.loads((await run(log, "why", "device", "a/gpu/2", "-o", "json")).stdout)
    assert (found["state"], found["since"], found["id"]) == ("unhealthy", text(60), "GPU-a-2")
    gone = await run(log, "why", "device", "a/rdma/1")
    assert gone.stdout.startswith(f"a/rdma/1 (mlx5_1): it disappeared at {text(60)}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a/gpu/9", "node a has no gpu/9; it has gpu 0, 1, 2, 3; rdma 0, 1"),
        ("a/npu/0", "node a has no npu/0; it has gpu 0, 1, 2, 3; rdma 0, 1"),
        ("a", "'a' is no device; give NODE/TYPE/MINOR. a has gpu 0, 1, 2, 3; rdma 0, 1"),
        ("plain/gpu/0", "node plain has no devices; nodes with devices: a. Give NODE/TYPE/MINOR, such as worker-1/gpu/0"),
        ("b/gpu/0", "there is no node 'b'; nodes with devices: a. Give NODE/TYPE/MINOR, such as worker-1/gpu/0"),
    ],
)  # fmt: skip
async def test_an_unknown_device_is_an_error_that_names_those_there_are(log: Log, name: str, message: str) -> None:
    result = await run(log, "why", "device", name)
    assert (result.exit_code, result.stderr.strip()) == (1, f"koord: {message}")


async def test_the_example_of_the_document_is_what_the_command_prints(database: str) -> None:
    document = (Path(__file__).parents[3] / "docs" / "devices.md").read_text()
    command, printed = re.findall(r"```text\n\$ koord (why device.*?)\n(.*?)```", document, re.DOTALL)[0]
    half = '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"40Gi","koordinator.sh/gpu-memory-ratio":"50"}}]}'
    bound = PodBound(pod="default/inference", pod_uid="i", node="gpu-1", allocations={DEVICE_ALLOCATED: half})
    await append(database, "cluster", [Draft(bound)], instant_ns("2026-11-26T18:40:11.020Z"))
    pods = (DeviceUser("default/inference", "i"),)
    common: dict[str, Any] = {"device": "gpu-1/gpu/1", "node": "gpu-1", "boot": "b", "number": 1}
    began, sick_ns, gone_ns = map(instant_ns, ("2026-11-20T08:00:04Z", "2026-11-27T03:11:30Z", "2026-11-27T03:12:00Z"))
    steps = [
        DeviceAppeared(**common, at_ns=began, found=gpu(1), health_since_ns=began),
        DeviceHealthChanged(**common, at_ns=sick_ns, found=sick(1), health_since_ns=sick_ns, reason="Xid79", pods=pods),
        DeviceDisappeared(**common, at_ns=gone_ns, why="missing", found=sick(1), pods=pods),
    ]
    await append(database, "devices-0", [Draft(each) for each in steps], gone_ns)
    result = await run(Log(database), *command.split(), "--since", "2026-11-20")
    seq = re.compile(r"devices-0/\d+ *")
    assert seq.sub("", result.stdout) == seq.sub("", printed), result.stderr
