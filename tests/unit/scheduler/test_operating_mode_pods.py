"""Pods in operating mode `Reservation`: once they run, their capacity is for the pods that they name.

Source: spec/scheduler-workloads.md 1.12.
"""

import json
from typing import Any

import pytest

from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.operating_mode_pod import CURRENT_OWNER, OPERATING_MODE, OWNERS
from shared.events import RecordedEvent
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodPlaced
from shared.kube.pod import Pod, PodCondition
from shared.kube.system_annotations import RESERVATION_ALLOCATED
from tests.support.reservations import available, reservation
from tests.support.scheduling_world import World, node, placements, pod, unschedulable

READY = PodCondition(type="Ready", status="True")
FOR_WEB = [{"labelSelector": {"matchLabels": {"app": "web"}}}]


def operating(name: str = "op", cpu: str = "3", *, on: str = "a", owners: Any = FOR_WEB, **more: Any) -> Pod:
    annotations = {OWNERS: json.dumps(owners)} | more.pop("annotations", {})
    more = {"phase": "Running", "conditions": (READY,)} | more
    labels = {OPERATING_MODE: "Reservation"}
    return pod(name, cpu=cpu, memory=None, on=on, labels=labels, annotations=annotations, **more)


def web(name: str = "w", cpu: str = "2", **more: Any) -> Pod:
    return pod(name, cpu=cpu, memory=None, labels={"app": "web"}, **more)


def world_with(*pods: Pod) -> World:
    world = World()
    world.add_node(node("a", cpu="4"))
    for each in pods:
        world.add_pod(each)
    world.read()
    return world


def schedule(world: World, *pods: Pod) -> list[RecordedEvent]:
    for each in pods:
        world.add_pod(each)
    world.read()
    return world.cycles()


def used(records: list[RecordedEvent]) -> dict[str, str]:
    events = (r.event for r in records)
    return {e.pod_uid: e.annotations.get(RESERVATION_ALLOCATED, "") for e in events if isinstance(e, PodPlaced)}


def test_a_pod_takes_over_the_capacity_of_a_running_pod_that_names_it() -> None:
    world = world_with(operating())
    assert placements(schedule(world, pod("other", cpu="2", memory=None))) == {}
    assert used(schedule(world, web())) == {"w": '{"name":"op","uid":"op"}'}
    assert used(schedule(world, web("second", "1"))) == {"second": ""}, "it is for one pod"
    assert placements(schedule(world, web("third", "1"))) == {}, "4 cores: 2 of the owner, 1 left, 1 of the second"


@pytest.mark.parametrize(
    "more",
    [
        {"phase": "Pending"},
        {"conditions": ()},
        {"conditions": (PodCondition(type="Ready", status="False"),)},
        {"annotations": {CURRENT_OWNER: json.dumps({"namespace": "d", "name": "x", "uid": "x"})}},
        {"annotations": {OWNERS: "["}},
        {"owners": []},
        {"deleting": True},
    ],
    ids=["not running", "no condition", "not ready", "used", "owners unreadable", "no owners", "terminating"],
)
def test_a_pod_that_does_not_act_as_a_reservation_is_a_pod(more: dict[str, Any]) -> None:
    world = world_with(operating(**more))
    assert placements(schedule(world, web())) == {}


def test_a_waiting_owner_is_placed_once_the_pod_is_ready_and_not_after_it_is_gone() -> None:
    world = world_with(operating(conditions=()))
    assert placements(schedule(world, web())) == {}
    world.wait(2)
    assert placements(schedule(world, operating())) == {"w": "a"}
    world = world_with(operating())
    world.drop_pod("op")
    assert used(schedule(world, web())) == {"w": ""}


def test_its_capacity_is_for_the_next_pod_when_its_owner_is_gone() -> None:
    world = world_with(operating())
    assert placements(schedule(world, web())) == {"w": "a"}
    world.drop_pod("w")
    assert used(schedule(world, web("next"))) == {"next": '{"name":"op","uid":"op"}'}


def test_an_owner_by_name_and_a_required_reservation_by_name() -> None:
    world = world_with(operating(owners=[{"object": {"namespace": "d", "name": "w"}}]))
    affinity = {"scheduling.koordinator.sh/reservation-affinity": '{"name":"op"}'}
    plain = pod("w", cpu="2", memory=None, annotations=affinity)
    assert used(schedule(world, plain)) == {"w": '{"name":"op","uid":"op"}'}


def test_a_reservation_without_a_policy_excludes_it_on_its_node() -> None:
    world = world_with()
    available(world, reservation("web", "1"), "a", allocatable={"cpu": "1"})
    starting = operating(on="", cpu="1", phase="Pending", conditions=())
    records = schedule(world, starting)
    assert unschedulable(records)["op"].message == (
        "0/1 nodes are available: 1 node(s) reservation allocate policy conflict."
    )


def test_it_is_not_evicted_for_a_pod_of_higher_priority() -> None:
    world = world_with(operating())
    records = schedule(world, pod("high", cpu="4", memory=None, priority=1000))
    assert placements(records) == {}
    assert not [r for r in records if isinstance(r.event, EvictionRequested)]


def test_a_restored_state_has_it() -> None:
    world = world_with(operating(owners=[{"object": {"name": "w"}}]))
    restored = SchedulerState()
    restored.restore(world.view.encode())
    assert restored.encode() == world.view.encode()
    world.view, world.cache = restored, None
    assert used(schedule(world, web())) == {"w": '{"name":"op","uid":"op"}'}
