"""SchedulingHint: someone else has decided, wholly or in part."""

import json

import pytest

from services.scheduler.plugins.scheduling_hint.args import BadHintArgs, read_hint_args
from services.scheduler.plugins.scheduling_hint.plugin import SchedulingHint
from shared.events.scheduling import PodPlaced
from tests.support.numa_machines import STATUS, bound_pod, machine, reported
from tests.support.scheduling_world import World, node, placements, pod, unschedulable
from tests.unit.scheduler.plugin_harness import PluginHarness, class_of

HINT = "internal.scheduling.koordinator.sh/scheduling-hint"
OLD = "scheduling.koordinator.sh/scheduling-hint"


def hinted(**hint: object) -> dict[str, str]:
    return {HINT: json.dumps(hint)}


def world_of(*nodes: str) -> World:
    world = World(believes_annotations=True)
    for number, name in enumerate(nodes):
        world.add_node(node(name, cpu=str(4 + 4 * number)))
    return world


def test_named_nodes_are_the_only_ones() -> None:
    world = world_of("a", "b", "c")
    world.add_pod(pod("p", annotations=hinted(nodeNames=["a", "gone"])))
    world.add_pod(pod("q", annotations=hinted(nodeNames=["gone"])))
    world.read()
    records = world.cycles()
    assert placements(records) == {"p": "a"}
    assert unschedulable(records)["q"].code == "HintMismatch"


def test_the_first_preferred_node_that_takes_the_pod_comes_before_all_scores() -> None:
    world = world_of("a", "b", "c")
    world.add_pod(pod("p", cpu="6", annotations=hinted(preferredNodeNames=["gone", "a", "b"])))
    world.read()
    assert placements(world.cycles()) == {"p": "b"}  # `a` is too small, `c` would be better


def test_the_annotation_by_its_old_name_is_read_where_the_new_one_is_not() -> None:
    plugin = SchedulingHint()
    both = pod("p", annotations={HINT: '{"nodeNames":["a"]}', OLD: '{"nodeNames":["b"]}'})
    old = pod("p", annotations={OLD: '{"nodeNames":["b"]}'})
    one = PluginHarness(plugin, [node("a"), node("b")])
    assert one.refusals(both) == {"b": ("HintMismatch",)}
    assert one.refusals(old) == {"a": ("HintMismatch",)}


def test_a_hint_that_cannot_be_read_refuses_the_pod() -> None:
    one = PluginHarness(SchedulingHint(), [node("a")])
    assert one.refusals(pod("p", annotations={HINT: "{"})) == {"a": ("UnreadableAnnotation",)}
    world = world_of("a")
    world.add_pod(pod("p", annotations={HINT: "5"}))
    world.read()
    message = unschedulable(world.cycles())["p"].message
    assert f"annotation {HINT} cannot be read: expected an object, got a whole number; correct or remove it" in message


def test_only_so_many_preferred_nodes_are_looked_at() -> None:
    plugin = SchedulingHint(read_hint_args({"maxHintNodes": 2}, "args"))
    assert plugin.preferred_nodes(class_of(pod("p", annotations=hinted(preferredNodeNames=["a", "b", "c"])))) == (
        "a",
        "b",
    )
    with pytest.raises(BadHintArgs, match="maxHintNodes"):
        read_hint_args({"maxHintNodes": 0}, "args")


def test_a_hint_for_numa_allocates_exactly_the_designated_cpus_or_nothing() -> None:
    world = World(believes_annotations=True)
    world.observe(reported())
    world.add_node(machine())
    notes = hinted(nodeNames=["n"], extensions={"NodeNUMAResource": {}}) | {STATUS: '{"cpuset":"6-7,10-11"}'}
    world.add_pod(bound_pod("p", 4, annotations=notes))
    world.add_pod(bound_pod("q", 4, annotations=notes))
    world.read()
    records = world.cycles()
    (placed,) = (record.event for record in records if isinstance(record.event, PodPlaced))
    assert json.loads(placed.annotations[STATUS]) == {"cpuset": "6-7,10-11"}
    assert unschedulable(records)["q"].code == "NotEnoughCpus"
