"""Pods of one tenant that are refused delay those of another by no cycle; those that were never tried, by one try each.

The long form has 100,000 of them.
"""

import pytest
from msgspec.structs import replace

from shared.kube.pod import Pod
from tests.support.scheduling_world import World, node, placements, pod

A_CYCLE = 256
"""Pods that a cycle tries."""

SIZES = [2_000, pytest.param(100_000, marks=pytest.mark.soak)]


def of(namespace: str, one: Pod) -> Pod:
    return replace(one, metadata=replace(one.metadata, namespace=namespace))


def flooded(pods: int, templates: int) -> World:
    world = World()
    for number in range(100):
        world.add_node(node(f"n{number}", cpu="32", memory="64Gi"))
    for number in range(pods):
        world.add_pod(of("flood", pod(f"f{number}", cpu="64", labels={"template": str(number % templates)})))
    return world


def cycles_until_placed(world: World, name: str) -> int:
    """Adds a pod of another tenant. Returns the number of cycles until it is placed."""
    world.add_pod(of("other", pod(name, cpu="1")))
    world.read()
    cycles = 1
    while name not in placements(world.cycle()):
        cycles += 1
    return cycles


@pytest.mark.parametrize("templates", [1, 20])
@pytest.mark.parametrize("pods", SIZES)
def test_refused_pods_of_one_tenant_delay_those_of_another_by_no_cycle(pods: int, templates: int) -> None:
    assert cycles_until_placed(flooded(0, 1), "alone") == 1
    world = flooded(pods, templates)
    assert cycles_until_placed(world, "behind") == 2, "a template that was refused once is not evaluated for each pod"
    world.cycles(batch=4_096)
    world.wait(20)
    assert cycles_until_placed(world, "later") == 1


def test_pods_that_were_never_tried_and_are_all_different_delay_others_by_one_try_each() -> None:
    """The order among pods of equal priority is that of their arrival."""
    world = flooded(2_000, 2_000)
    assert cycles_until_placed(world, "behind") == 2_000 // A_CYCLE + 1
    world.wait(20)
    assert cycles_until_placed(world, "later") == 1
