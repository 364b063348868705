"""Requeued classes and placements have budgets of their own: refused pods slow down no others, and none of them starves."""

import pytest

from services.scheduler.cycle import cycle
from tests.support.scheduling_world import World, node, placements, pod

NODES = 4
REFUSED = 6


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A cluster whose scheduler has refused pods of six classes, in which a cycle may place pods of four classes."""
    monkeypatch.setattr(cycle, "CLASS_COST_NODES", 0)
    monkeypatch.setattr(cycle, "MAX_EVALUATED_NODES", 4 * NODES)
    monkeypatch.setattr(cycle, "MAX_REQUEUE_NODES", 2 * NODES)
    made = World()
    for number in range(NODES):
        made.add_node(node(f"n{number}", cpu="8"))
    for number in range(REFUSED):
        made.add_pod(pod(f"refused-{number}", extra={f"example.com/r{number}": "1"}))
    made.read()
    assert not placements(made.cycles())
    made.wait(60)
    return made


def test_refused_classes_leave_the_budget_of_placements_alone(world: World) -> None:
    world.add_node(node("n0", cpu="9"))  # an event that may end their reason
    for number in range(4):
        world.add_pod(pod(f"small-{number}", cpu=f"{100 + number}m"))
    world.read()
    assert len(placements(world.cycle())) == 4


@pytest.mark.parametrize("number", range(REFUSED))
def test_no_refused_class_starves_while_other_pods_arrive(world: World, number: int) -> None:
    world.add_node(node("n0", cpu="9", extra={f"example.com/r{number}": "1"}))  # an event for all classes
    placed: dict[str, str] = {}
    for turn in range(REFUSED):
        world.add_pod(pod(f"small-{turn}", cpu=f"{100 + turn}m"))
        world.read()
        placed |= placements(world.cycle())
    assert placed[f"refused-{number}"] == "n0"


def test_all_refused_classes_are_evaluated_while_no_other_pod_waits(world: World) -> None:
    world.add_node(node("n0", cpu="9", extra={f"example.com/r{number}": "1" for number in range(REFUSED)}))
    world.read()
    assert len(placements(world.cycle())) == REFUSED
