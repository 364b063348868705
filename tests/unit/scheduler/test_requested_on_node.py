"""The requests on a node that commands show are those that the scheduler counts."""

from services.scheduler.explain.requested_on_node import requested_on
from services.scheduler.plugins.node_numa_resource.amplification_ratio_annotation import ANNOTATION
from tests.support.numa_machines import bound_pod, holding_pod, machine, reported
from tests.support.scheduling_world import World, placements, pod
from tests.unit.scheduler.test_cpus_in_reservations import hold, owner, schedule, world_of


def shown(world: World, *, believes: bool = True) -> dict[str, int]:
    there = [each for each in world.view.pods.values() if each.node_or_placement() == "n"]
    found = requested_on(world.view, world.view.nodes["n"].node, there, believes_annotations=believes)
    return {name: size for name, size in found.items() if size}


def counted(world: World) -> dict[str, int]:
    """Returns what the scheduler's table has."""
    cache = world.indexed()
    cache.settle()
    table = cache.table
    sizes = table.requested[table.rows["n"]]
    return {name: int(sizes[column]) for name, column in table.columns.items() if sizes[column]}


def test_a_reservation_counts_with_what_its_owners_leave() -> None:
    world = world_of(pod("plain", cpu="1", on="n"))
    hold(world, "web", "4")
    assert shown(world)["cpu"] == 5000
    assert shown(world) == counted(world)
    assert placements(schedule(world, owner("a", 3, "web"))) == {"a": "n"}
    assert shown(world)["cpu"] == 5000, "three of the four cores count as the owner's"
    assert shown(world) == counted(world)
    assert placements(schedule(world, owner("b", 3, "web"))) == {"b": "n"}
    assert shown(world)["cpu"] == 7000, "the second owner has one core of the Reservation"
    assert shown(world) == counted(world)


def test_own_cpus_count_amplified_on_an_amplified_node() -> None:
    world = World()
    world.believes_annotations = True
    world.observe(reported())
    world.add_node(machine(annotations={ANNOTATION: '{"cpu": 1.5}'}))
    world.add_pod(holding_pod("fixed", "0", "n"))
    world.add_pod(pod("shared", cpu="2", on="n"))
    world.read()
    assert counted(world)["cpu"] == 3000
    assert shown(world)["cpu"] == 3500, "its CPU times 1.5, and 2"
    assert shown(world, believes=False)["cpu"] == 3000, "whose annotations are not believed has no CPUs of its own"


def test_an_unreadable_ratio_and_unreadable_cpus_change_nothing() -> None:
    world = World()
    world.believes_annotations = True
    world.observe(reported())
    world.add_node(machine(annotations={ANNOTATION: "many"}))
    world.add_pod(holding_pod("fixed", "0", "n"))
    world.add_pod(holding_pod("odd", "a-b", "n"))
    world.add_pod(bound_pod("waits", 2))
    world.read()
    assert counted(world)["cpu"] == 2000
    assert shown(world) == counted(world)
