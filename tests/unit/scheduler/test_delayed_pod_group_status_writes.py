"""The statuses of PodGroups are written after the bindings of a burst, and never later than after a limit."""

from services.scheduler.gangs.delayed_pod_group_status_writes import LONGEST_WAIT_NS, StatusesAfterBindings
from shared.domain import gang
from shared.kube.instants import SECOND
from tests.support.scheduling_world import World, node, pod


def world_with_two_gangs() -> World:
    world = World()
    world.add_node(node("a"))
    for uid, job in (("p0", "job"), ("p1", "job"), ("q0", "other")):
        world.add_pod(pod(uid, memory=None, labels={gang.POD_GROUP_LABEL: job}))
    world.read()
    return world


def taken(statuses: StatusesAfterBindings, world: World, *changed: str) -> list[str]:
    """Returns the gangs whose status is to be written, a second later."""
    world.wait(1)
    return sorted(statuses.take(world.view, changed, world.now_ns))


def test_statuses_of_all_gangs_wait_while_one_is_being_bound_and_are_written_once() -> None:
    world, statuses = world_with_two_gangs(), StatusesAfterBindings()
    placed = [world.place(uid, "a") for uid in ("p0", "p1")]
    assert taken(statuses, world, "d/job") == []
    for each in placed:
        world.answer(each)
    for uid in ("p0", "p1"):
        world.add_pod(pod(uid, memory=None, labels={gang.POD_GROUP_LABEL: "job"}, on="a", phase="Running"))
    world.read()
    assert taken(statuses, world, "d/job", "d/other") == [], "the next gang may be placed in the next moment"
    assert taken(statuses, world) == ["d/job", "d/other"]
    assert not statuses
    assert taken(statuses, world) == []


def test_a_status_is_written_at_once_where_nothing_is_being_bound() -> None:
    world, statuses = world_with_two_gangs(), StatusesAfterBindings()
    assert taken(statuses, world, "d/other", "d/gone") == ["d/gone", "d/other"]


def test_a_binding_that_takes_long_delays_statuses_up_to_a_limit() -> None:
    world, statuses = world_with_two_gangs(), StatusesAfterBindings()
    world.place("q0", "a")
    waits = [taken(statuses, world, "d/other") for _ in range(LONGEST_WAIT_NS // SECOND + 1)]
    assert waits == [[]] * (LONGEST_WAIT_NS // SECOND) + [["d/other"]]
    assert taken(statuses, world, "d/other") == [], "the next change waits anew"
    world.now_ns -= 3600 * SECOND
    assert taken(statuses, world) == ["d/other"], "a clock that is set back holds up none"


def test_pods_that_are_held_on_their_nodes_delay_none() -> None:
    world, statuses = world_with_two_gangs(), StatusesAfterBindings()
    world.hold("p0", "a", unit="d/job")
    assert taken(statuses, world, "d/job") == ["d/job"]
