"""Pods that fit nowhere, in their thousands, delay nobody else: neither the cycles' length nor their order."""

import pytest

from services.scheduler.cycle.cycle import CLASS_COST_NODES, MAX_EVALUATED_NODES
from tests.support.executed_lines import steps_of
from tests.support.scheduling_world import World, cycles_of, metric, node, placements, pod, unschedulable

FLOOD = 50_000
LINES = 6_000
"""Of Python, that a cycle with one new pod runs: far fewer than a flood has pods."""


def world_of(nodes: int) -> World:
    world = World()
    for number in range(nodes):
        world.add_node(node(f"n{number}", cpu="32", memory="64Gi"))
    return world


def flood(world: World, pods: int, classes: int, priority: int | None = None) -> None:
    """Pods that fit on no node, of so many templates."""
    for number in range(pods):
        world.add_pod(pod(f"big{number}", cpu=f"{64_000 + number % classes}m", priority=priority))


def test_a_pod_that_comes_behind_fifty_thousand_that_fit_nowhere_is_placed_in_the_second_cycle() -> None:
    world = world_of(100)
    flood(world, FLOOD, classes=1)
    world.add_pod(pod("small"))
    world.read()
    first = world.cycle()
    assert len(unschedulable(first)) == 256
    assert placements(world.cycle()).keys() == {"small"}


def test_what_has_been_refused_before_comes_behind_what_has_not_although_five_minutes_are_over() -> None:
    world = world_of(10)
    flood(world, 5000, classes=20)
    world.read()
    world.cycles(batch=1024)
    world.wait(400)
    world.add_pod(pod("small"))
    world.read()
    (cycle,) = cycles_of(world.cycle())
    assert cycle.pods[0].pod_uid == "small"
    assert len(cycle.pods) == 256, "the others are tried again nevertheless"


def test_priority_counts_more_than_having_been_refused() -> None:
    world = world_of(1)
    flood(world, 2, classes=1, priority=9000)
    world.read()
    world.cycle(batch=1)
    world.add_pod(pod("small", priority=5000))
    world.read()
    assert [outcome.pod_uid for cycle in cycles_of(world.cycles(batch=1)) for outcome in cycle.pods] == [
        "big1",
        "small",
    ]


def test_a_class_is_fresh_again_once_none_of_its_pods_is_refused() -> None:
    world = world_of(1)
    world.add_pod(pod("a", cpu="40"))
    world.read()
    world.cycle()
    world.add_pod(pod("b", cpu="40"))
    world.add_pod(pod("c", cpu="50"))
    world.drop_pod("a")
    world.read()
    assert [outcome.pod_uid for outcome in cycles_of(world.cycle())[0].pods] == ["b", "c"]


@pytest.mark.parametrize(("pods", "classes"), [(FLOOD, 1), (10_000, 50), (10_000, 1000)])
def test_a_standing_flood_costs_a_cycle_next_to_nothing_whatever_happens_around_it(pods: int, classes: int) -> None:
    world = world_of(100)
    flood(world, pods, classes)
    world.read()
    world.cycles(batch=4096)
    world.wait(20)
    assert world.cycle(batch=4096) == [], "the backoffs are over, and nothing has changed"
    for number in range(3):
        world.report(metric(f"n{number}", cpu="1", at_ns=world.now_ns))
        world.add_node(node("n0", cpu="32", memory="64Gi", labels={"step": str(number)}))
        world.add_pod(pod(f"small{number}"))
        world.read()
        records, steps = steps_of(world.cycle)
        assert steps < LINES
        assert placements(records).keys() == {f"small{number}"}
        assert len(cycles_of(records)[0].pods) == 1
        world.wait(1)


def test_an_event_that_may_help_every_class_of_a_flood_is_evaluated_in_cycles_of_bounded_size_behind_new_pods() -> None:
    world = world_of(1000)
    flood(world, 3000, classes=3000)
    world.add_pod(pod("runs", cpu="1", on="n3", phase="Running"))
    world.read()
    world.cycles(batch=4096)
    world.wait(20)
    world.drop_pod("runs")  # room is freed: it might have been all that was missing
    world.add_pod(pod("small"))
    world.read()
    (cycle,) = cycles_of(first := world.cycle(batch=4096))
    assert cycle.pods[0].pod_uid == "small"
    assert placements(first).keys() == {"small"}
    assert 1 < len(cycle.pods) <= MAX_EVALUATED_NODES // (1000 + CLASS_COST_NODES)
    world.add_pod(pod("another"))
    world.read()
    assert "another" in placements(world.cycle(batch=4096))
