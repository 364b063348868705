"""Devices of Reservations: owners get those, nobody else does, and nothing counts twice."""

import json
from typing import Any

import msgspec

from services.scheduler.plugins.device_share.allocation_annotation import allocation_of
from shared.domain.device_allocation import remaining_devices
from shared.domain.reservation import RESIZE
from shared.domain.scheduler_gates import RESIZE_POD
from shared.events.scheduling import PlacementReserved, PodPlaced
from shared.kube.pod import Pod
from shared.kube.system_annotations import DEVICE_ALLOCATED
from tests.support.device_machines import CORE, GPU, MEMORY, RATIO, devices, gpu_node, gpu_pod
from tests.support.reservations import live, observe, reservation, status_of
from tests.support.scheduling_world import World, unschedulable


def world_of(gpus: int = 2) -> World:
    world = World()
    world.believes_annotations = True
    world.observe(devices("n", gpus))
    world.add_node(gpu_node("n", gpus))
    world.read()
    return world


def hold(world: World, name: str, percent: str, **spec: Any) -> list[int]:
    """Returns the GPUs of a Reservation for pods with label `app: NAME`, once it is available."""
    observe(world, reservation(name, "1", requests={GPU: percent}, allocateOnce=False, **spec))
    world.read()
    records = world.cycles()
    live(world)
    (held,) = (r.event for r in records if isinstance(r.event, PlacementReserved))
    return [device.minor for device in allocation_of(held.annotations)]


def owner(name: str, percent: str, of: str) -> Pod:
    one = gpu_pod(name, {GPU: percent})
    metadata = msgspec.structs.replace(one.metadata, labels={**(one.metadata.labels or {}), "app": of})
    return msgspec.structs.replace(one, metadata=metadata)


def schedule(world: World, pod: Pod) -> tuple[list[int], str]:
    """Returns the GPUs of a pod, and the code of its refusal."""
    world.add_pod(pod)
    world.read()
    records = world.cycles()
    placed = [r.event for r in records if isinstance(r.event, PodPlaced)]
    refused = unschedulable(records).get(pod.metadata.uid)
    return [
        device.minor for each in placed for device in allocation_of(each.annotations)
    ], refused.code if refused else ""


def test_owners_share_the_card_of_their_reservation_and_nobody_else_gets_it() -> None:
    world = world_of()
    assert hold(world, "web", "100") == [0]
    assert schedule(world, gpu_pod("other", {GPU: "100"})) == ([1], "")
    assert schedule(world, gpu_pod("late", {GPU: "50"}))[0] == []
    assert schedule(world, owner("a", "50", "web")) == ([0], "")
    assert schedule(world, owner("b", "50", "web")) == ([0], "")
    assert schedule(world, owner("c", "50", "web"))[0] == []


def test_under_the_gate_a_reservation_holds_all_amounts_of_its_devices() -> None:
    for gates in (frozenset[str](), frozenset((RESIZE_POD,))):
        world = world_of(4)
        world.scheduler_gates = gates
        hold(world, "web", "200", metadata={"annotations": {RESIZE: '{"resources":{"cpu":"3"}}'}})
        resized = {CORE: "200", MEMORY: str(160 << 30), RATIO: "200"} if gates else {}
        assert status_of(world, "web")["allocatable"] == {"cpu": "3", GPU: "200", **resized}
        assert schedule(world, gpu_pod("other", {GPU: "200"})) == ([2, 3], "")
        assert schedule(world, owner("a", "100", "web")) == ([0], "")
        assert schedule(world, owner("b", "100", "web")) == ([1], "")
        assert schedule(world, owner("c", "50", "web"))[0] == []


def test_what_is_left_is_what_owners_do_not_have() -> None:
    held = json.dumps({"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "100"}}]})
    half = json.dumps({"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "50"}}]})
    left = remaining_devices(held, (half,))
    assert left is not None
    assert json.loads(left)["gpu"][0]["resources"] == {"koordinator.sh/gpu-core": "50"}
    assert remaining_devices(held, (half, half)) is None
    assert remaining_devices("{", (half,)) == "{"
    assert allocation_of({DEVICE_ALLOCATED: left}) == allocation_of({DEVICE_ALLOCATED: half})
