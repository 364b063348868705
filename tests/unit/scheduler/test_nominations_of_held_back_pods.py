"""Nominated pods that are not tried now lose what is kept for them: pods behind them would wait for nothing."""

from collections.abc import Callable

import pytest

from shared.events.cluster import ObjectDeleted
from shared.events.intents import FieldsDesired
from shared.events.scheduling import PodNominated
from shared.kube.resource_names import POD_GROUPS
from tests.support.scheduling_world import World, placements, pod
from tests.unit.scheduler.test_gangs import add, member, pod_group, world_of


def nominated() -> World:
    """Node a: pod `runs` is evicted for the member `waits`; pod `low` has no room."""
    world = world_of(a="4")
    pod_group(world, "job", 1)
    add(world, pod("runs", cpu="4", memory=None, on="a", phase="Running"))
    add(world, member("job", "waits", cpu="4", priority=100))
    world.cycle()
    add(world, pod("low", cpu="4", memory=None))
    assert world.view.pods["waits"].nominated == "a"
    return world


def without_group(world: World) -> None:
    world.observe(ObjectDeleted(resource=POD_GROUPS, name="d/job", uid="job"))


def with_a_larger_minimum(world: World) -> None:
    pod_group(world, "job", 2)


@pytest.mark.parametrize("change", [without_group, with_a_larger_minimum])
@pytest.mark.parametrize("is_free_first", [True, False])
def test_the_node_goes_to_the_pod_behind_it(change: Callable[[World], None], is_free_first: bool) -> None:
    world = nominated()
    for is_freed in (is_free_first, not is_free_first):
        if is_freed:
            world.drop_pod("runs")
            world.read()
            assert "low" not in placements(world.cycle() if is_free_first else ())
        else:
            change(world)
            world.read()
    records = world.cycle()
    ends = [each.event for each in records if isinstance(each.event, PodNominated)]
    assert [(event.pod_uid, event.node) for event in ends] == [("waits", "")]
    assert ends[0].reason.startswith("it is not tried at present: ")
    assert [each.event.patch for each in records if isinstance(each.event, FieldsDesired)] == [
        {"status": {"nominatedNodeName": None}}
    ]
    world.wait(20)
    assert placements(world.cycle()).keys() == {"low"}
    assert not world.cycle()
