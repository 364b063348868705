"""NonStrict gangs: members with a node hold it until the others have one, or until their waiting time is over."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain import gang
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import BindRejected, ObjectObserved, PodObserved
from shared.events.scheduling import PlacementReleased, PlacementReserved, PodPlaced
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.resource_names import POD_GROUPS
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, node, placements, pod, unschedulable
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota

WAITING_S = 60


def pod_group(world: World, minimum: int, name: str = "job", mode: str = "NonStrict", **more: str) -> None:
    annotations = {gang.MODE: mode, **more}
    body = {
        "metadata": {"name": name, "namespace": "d", "annotations": annotations},
        "spec": {"minMember": minimum, "scheduleTimeoutSeconds": WAITING_S},
    }
    world.observe(ObjectObserved(resource=POD_GROUPS, name=f"d/{name}", uid=name, object=body))


def members(world: World, count: int, first: int = 0, name: str = "job", **more: Any) -> None:
    labels = {gang.POD_GROUP_LABEL: name} | more.pop("labels", {})
    for number in range(first, first + count):
        world.add_pod(pod(f"p{number}", cpu="1", memory=None, labels=labels, **more))
    world.read()


def held(records: list[RecordedEvent]) -> dict[str, str]:
    return {each.event.holder_uid: each.event.node for each in records if isinstance(each.event, PlacementReserved)}


def released(records: list[RecordedEvent]) -> set[str]:
    return {each.event.holder_uid for each in records if isinstance(each.event, PlacementReleased)}


def world_with(cpu: str = "2") -> World:
    world = World()
    world.add_node(node("a", cpu=cpu))
    world.read()
    return world


def test_members_with_a_node_hold_it_and_are_bound_once_the_others_have_one() -> None:
    world = world_with()
    pod_group(world, 3)
    members(world, 3)
    records = world.cycle()
    assert placements(records) == {}
    assert held(records) == {"p0": "a", "p1": "a"}
    assert unschedulable(records)["p2"].message == "0/1 nodes are available: 1 Insufficient cpu."
    assert world.cycles() == []
    world.add_pod(pod("other", cpu="1", memory=None))
    world.read()
    assert placements(world.cycles()) == {}, "the capacity is held"
    world.add_node(node("b", cpu="1"))
    world.wait(2)
    world.read()
    placed = world.cycles()
    assert placements(placed) == {"p0": "a", "p1": "a", "p2": "b"}
    annotations = [each.event.annotations for each in placed if isinstance(each.event, PodPlaced)]
    assert {each[gang.BIND_COUNT[0]] for each in annotations} == {"3"}


def test_a_strict_gang_holds_nothing() -> None:
    world = world_with()
    pod_group(world, 3, mode="Strict")
    members(world, 3)
    assert held(world.cycle()) == {}


def test_held_nodes_are_released_when_the_waiting_time_is_over_and_go_to_others() -> None:
    world = world_with()
    pod_group(world, 3)
    members(world, 3)
    world.cycle()
    world.add_pod(pod("other", cpu="2", memory=None))
    world.read()
    world.cycles()
    cache = world.indexed()
    assert cache.next_at_ns() is not None
    world.wait(WAITING_S - 1)
    assert released(world.cycles()) == set()
    world.wait(1)
    assert released(world.cycle()) == {"p0", "p1"}
    placed = placements(world.cycles())
    assert placed == {"other": "a"}, "members wait for a change of their gang"


def test_a_gang_whose_time_was_over_is_tried_again_with_the_member_that_finds_a_node() -> None:
    world = world_with()
    pod_group(world, 3)
    members(world, 3)
    world.cycle()
    world.wait(WAITING_S)
    assert released(world.cycles()) == {"p0", "p1"}
    world.wait(11)
    world.add_node(node("b", cpu="1"))
    world.read()
    assert placements(world.cycles()).keys() == {"p0", "p1", "p2"}


def test_a_hold_ends_with_its_node() -> None:
    world = world_with()
    pod_group(world, 3)
    members(world, 3)
    world.cycle()
    world.drop_node("a")
    world.read()
    assert released(world.cycle()) == {"p0", "p1"}


def test_a_later_member_completes_the_gang() -> None:
    world = world_with()
    pod_group(world, 3)
    members(world, 2)
    members(world, 1, first=2, gates=("wait",))
    assert world.cycles() == []
    world.drop_pod("p2")
    world.add_pod(pod("p2", cpu="9", memory=None, labels={gang.POD_GROUP_LABEL: "job"}))
    world.read()
    assert held(world.cycle()).keys() == {"p0", "p1"}
    world.drop_pod("p2")
    world.read()
    world.add_node(node("b", cpu="1"))
    members(world, 1, first=3)
    assert placements(world.cycles()) == {"p0": "a", "p1": "a", "p3": "b"}


def test_holds_survive_a_snapshot() -> None:
    world = world_with()
    pod_group(world, 3)
    members(world, 3)
    world.cycle()
    copy = SchedulerState()
    copy.restore(world.view.encode())
    world.view, world.cache = copy, None
    world.wait(WAITING_S)
    assert released(world.cycle()) == {"p0", "p1"}


def test_held_members_are_charged_and_their_release_is_credited() -> None:
    world = Teams(quota("team", "8", "8"), cpu="1", nodes=2)
    pod_group(world, 3)
    world.read()
    members(world, 3, labels={QUOTA_NAME: "team"})
    assert held(world.cycle()).keys() == {"p0", "p1"}
    assert world.used("team") == 2000
    world.wait(2)
    world.add_node(node("n2", cpu="1"))
    world.read()
    assert placements(world.cycle()).keys() == {"p0", "p1", "p2"}
    assert world.used("team") == 3000


def test_a_member_without_a_node_waits_with_those_that_the_quota_refuses() -> None:
    """Otherwise it would be tried at once, and the gang with it, for ever."""
    world = Teams(quota("team", "1", "1"), cpu="1", nodes=2)
    pod_group(world, 3)
    world.read()
    members(world, 3, labels={QUOTA_NAME: "team"})
    assert held(world.cycle()) == {}
    assert {uid for uid, each in world.view.pods.items() if each.attempts} == {"p0", "p1", "p2"}
    world.wait(0.1)
    assert world.cycle() == []


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.sampled_from(["job", "other", ""]), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from([1, 2, 256]),
)
def test_no_member_is_bound_below_the_minimum_and_no_capacity_is_used_twice(
    pods: list[str], job: int, other: int, batch: int
) -> None:
    world = world_with("3")
    world.add_node(node("b", cpu="2"))
    pod_group(world, job)
    pod_group(world, other, name="other")
    for number, name in enumerate(pods):
        labels = {gang.POD_GROUP_LABEL: name} if name else {}
        world.add_pod(pod(f"p{number}", cpu="1", memory=None, labels=labels))
    world.read()
    bound: dict[str, str] = {}
    holds: dict[str, str] = {}
    for _ in range(6):
        while records := world.cycle(batch):
            holds |= held(records)
            for uid in (*released(records), *placements(records)):
                holds.pop(uid, None)
            bound |= placements(records)
            for name, minimum in (("job", job), ("other", other)):
                count = sum(f"p{number}" in bound for number, each in enumerate(pods) if each == name)
                assert count == 0 or count >= minimum
            for name, cpu in (("a", 3), ("b", 2)):
                assert sum(each == name for each in (*bound.values(), *holds.values())) <= cpu
        world.wait(31)


def test_a_released_hold_is_folded_alike_before_and_after_the_rejection_of_a_later_placement() -> None:
    saw: dict[str, Any] = {"seen": {"cluster": 1}, "cycle": 1, "node": "a", "request": {}}
    decisions: tuple[Event, ...] = (
        PlacementReserved(holder_uid="uid-p0", holder="d/p0", kind="Pod", waits_for="unit", **saw),
        PlacementReleased(holder_uid="uid-p0", holder="d/p0", kind="Pod", node="a", reason="r", seen={"cluster": 1}),
        PodPlaced(pod_uid="uid-p0", pod="d/p0", **saw),
    )
    own = [RecordedEvent("scheduling", seq, event, seq * 1000) for seq, event in enumerate(decisions, 1)]
    waiting = pod("p0", cpu="1", memory=None)
    cluster = [
        RecordedEvent("cluster", 1, PodObserved(pod="d/p0", pod_uid="uid-p0", object=waiting), 1000),
        RecordedEvent(
            "cluster", 2, BindRejected(pod="d/p0", pod_uid="uid-p0", reason="r"), 5000, Cause("scheduling", 3)
        ),
    ]
    states = SchedulerState(), SchedulerState()
    for state, records in zip(states, ([*cluster[:1], *own, *cluster[1:]], [*cluster, *own]), strict=True):
        for record in records:
            state.apply(record)
    assert states[0].encode() == states[1].encode()
    assert [reason for _, reason in states[1].pods["uid-p0"].reasons] == ["GangTimedOut"]
