"""Preemption takes members of a gang beyond its minimum, or the gang as a whole."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain import gang
from shared.events import RecordedEvent
from shared.events.cluster import ObjectObserved
from shared.events.intents import EvictionRequested
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.resource_names import POD_GROUPS
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, node, pod
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota


def pod_group(world: World, name: str, minimum: int, groups: str = "") -> None:
    annotations = {gang.GROUPS: groups} if groups else {}
    body = {"metadata": {"name": name, "namespace": "d", "annotations": annotations}, "spec": {"minMember": minimum}}
    world.observe(ObjectObserved(resource=POD_GROUPS, name=f"d/{name}", uid=name, object=body))


def run(world: World, name: str, on: str, group: str = "", cpu: str = "2", **more: Any) -> None:
    """A pod runs on a node."""
    labels = ({gang.POD_GROUP_LABEL: group} if group else {}) | more.pop("labels", {})
    more = {"priority": 0, **more}
    world.add_pod(pod(name, cpu=cpu, memory=None, on=on, phase="Running", labels=labels, **more))


def evicted(records: list[RecordedEvent]) -> set[str]:
    return {record.event.pod_uid for record in records if isinstance(record.event, EvictionRequested)}


def preempt(world: World, cpu: str = "2", **more: Any) -> set[str]:
    """A pod of high priority comes; returns the pods that are evicted for it."""
    world.add_pod(pod("high", cpu=cpu, memory=None, priority=100, **more))
    world.read()
    return evicted(world.cycle())


@pytest.fixture
def world() -> World:
    """A gang runs on two nodes that it fills."""
    world = World()
    for name in ("a", "b"):
        world.add_node(node(name, cpu="4"))
    for name, on in (("p0", "a"), ("p1", "a"), ("p2", "b"), ("p3", "b")):
        run(world, name, on, "job")
    return world


def test_a_gang_at_its_minimum_is_evicted_as_a_whole(world: World) -> None:
    pod_group(world, "job", 4)
    assert preempt(world) == {"p0", "p1", "p2", "p3"}


def test_members_beyond_the_minimum_are_evicted_alone(world: World) -> None:
    pod_group(world, "job", 3)
    assert len(preempt(world)) == 1


def test_a_gang_that_would_fall_below_its_minimum_goes_as_a_whole(world: World) -> None:
    pod_group(world, "job", 3)
    assert preempt(world, cpu="4") == {"p0", "p1", "p2", "p3"}


def test_ordinary_pods_are_evicted_rather_than_a_gang(world: World) -> None:
    pod_group(world, "job", 4)
    world.add_node(node("c", cpu="2"))
    run(world, "ordinary", "c")
    assert preempt(world) == {"ordinary"}


def test_no_member_is_evicted_where_one_of_the_gang_may_not_be(world: World) -> None:
    pod_group(world, "job", 5)
    world.add_node(node("c", cpu="2"))
    run(world, "p4", "c", "job", priority=200)
    assert preempt(world) == set()


def test_gangs_of_a_group_go_together(world: World) -> None:
    groups = '["d/job", "d/other"]'
    pod_group(world, "job", 4, groups)
    pod_group(world, "other", 1, groups)
    world.add_node(node("c", cpu="1"))
    run(world, "o0", "c", "other", cpu="1")
    assert preempt(world) == {"p0", "p1", "p2", "p3", "o0"}


def test_pods_of_a_gang_without_settings_are_evicted_alone(world: World) -> None:
    assert len(preempt(world)) == 1


def test_a_second_preemptor_of_a_cycle_counts_the_victims_of_the_first_one(world: World) -> None:
    pod_group(world, "job", 3)
    for name in ("first", "second"):
        world.add_pod(pod(name, cpu="2", memory=None, priority=100))
    world.read()
    taken = evicted(world.cycle())
    assert taken == {"p0", "p1", "p2", "p3"}, "one is beyond the minimum, and a second one ends the gang"


def team() -> Teams:
    world = Teams(quota("team", "4", "4"))
    for number in range(4):
        run(world, f"p{number}", "n0", "job", cpu="1", labels={QUOTA_NAME: "team"})
    return world


@pytest.mark.parametrize(("minimum", "count"), [(4, 4), (3, 1), (2, 1)])
def test_preemption_inside_a_quota_takes_gangs_alike(minimum: int, count: int) -> None:
    world = team()
    pod_group(world, "job", minimum)
    world.read()
    assert world.used("team") == 4000
    assert len(preempt(world, cpu="1", labels={QUOTA_NAME: "team"})) == count


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "g", "h"]), st.integers(0, 9)), max_size=9),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 6),
)
def test_no_gang_keeps_running_members_below_its_minimum(
    running: list[tuple[str, str, int]], g: int, h: int, cpu: int
) -> None:
    world = World()
    for name in "abc":
        world.add_node(node(name, cpu="6"))
    pod_group(world, "g", g)
    pod_group(world, "h", h)
    count = {"g": 0, "h": 0}
    for number, (on, group, priority) in enumerate(running):
        run(world, f"{group or 'p'}{number}", on, group, priority=priority)
        if group:
            count[group] += 1
    world.read()
    taken = preempt(world, cpu=str(cpu))
    for name, minimum in (("g", g), ("h", h)):
        lost = sum(uid.startswith(name) for uid in taken)
        assert not lost or lost == count[name] or count[name] - lost >= minimum
