"""Cycles in which a placement changes what other nodes are worth: spread and affinity between pods, placed in batches."""

from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kube.node import Node
from shared.kube.pod import Affinity, Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from shared.kube.selectors import LabelSelector
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, node, placements, pod, unschedulable
from tests.unit.scheduler.cluster_worlds import HOST, nodes, pods

WEB = LabelSelector(match_labels={"app": "web"})


def zoned(name: str, zone: str) -> Node:
    return node(name, labels={HOST: name, "zone": zone})


def near(app: str, key: str = "zone") -> Affinity:
    term = PodAffinityTerm(topology_key=key, label_selector=LabelSelector(match_labels={"app": app}))
    return Affinity(pod_affinity=PodAffinity(required=(term,)))


def apart(key: str = HOST) -> Affinity:
    return Affinity(pod_anti_affinity=PodAffinity(required=(PodAffinityTerm(topology_key=key, label_selector=WEB),)))


def spread(max_skew: int = 1) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=max_skew, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=WEB
    )


def world_of(*nodes: Node) -> World:
    world = World()
    for each in nodes:
        world.add_node(each)
    return world


def add(world: World, *pods: Pod) -> None:
    for each in pods:
        world.add_pod(each)
    world.read()


def with_spread(pod: Pod, *constraints: TopologySpreadConstraint) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, topology_spread_constraints=constraints))


def test_pods_that_avoid_each_other_take_one_node_each_and_the_last_one_none() -> None:
    world = world_of(*(zoned(f"n{number}", "z") for number in range(3)))
    add(world, *(pod(f"w{number}", labels={"app": "web"}, affinity=apart()) for number in range(4)))
    records = world.cycle()
    assert sorted(placements(records).values()) == ["n0", "n1", "n2"]
    assert unschedulable(records)["w3"].code == "PodAntiAffinityMismatch"


def test_a_running_pods_dislike_closes_its_domain_within_the_cycle() -> None:
    world = world_of(zoned("n0", "a"), zoned("n1", "a"), zoned("n2", "b"))
    add(world, pod("shy", labels={"app": "shy"}, affinity=apart("zone"), selector={HOST: "n0"}))
    add(world, *(pod(f"w{number}", labels={"app": "web"}) for number in range(3)))
    placed = placements(world.cycle())
    assert placed == {"shy": "n0", "w0": "n2", "w1": "n2", "w2": "n2"}


def test_pods_spread_over_zones_pod_by_pod() -> None:
    world = world_of(zoned("a0", "a"), zoned("b0", "b"), zoned("c0", "c"), zoned("c1", "c"))
    add(world, *(with_spread(pod(f"w{number}", labels={"app": "web"}), spread()) for number in range(6)))
    placed = [placements(world.cycle(batch=1)) for _ in range(6)]
    zones = [name[0] for one in placed for name in one.values()]
    assert sorted(zones[:3]) == sorted(zones[3:]) == ["a", "b", "c"]


def test_a_rejected_class_is_tried_again_once_the_cycle_places_a_pod_that_its_affinity_matches() -> None:
    world = world_of(zoned("n0", "a"), zoned("n1", "b"))
    friends = [pod(f"f{number}", labels={"app": "f"}, affinity=near("db")) for number in range(2)]
    add(world, friends[0], pod("db", labels={"app": "db"}, selector={HOST: "n1"}), friends[1])
    records = world.cycle()
    assert placements(records) == {"db": "n1", "f1": "n1"}
    assert unschedulable(records)["f0"].code == "PodAffinityMismatch"


def test_a_pod_is_requeued_when_a_pod_that_its_affinity_matches_runs() -> None:
    world = world_of(zoned("n0", "a"))
    add(world, pod("f", labels={"app": "f"}, affinity=near("db")))
    assert placements(world.cycle()) == {}
    world.wait(2)
    assert world.cycle() == []
    add(world, pod("other", on="n0", phase="Running"))
    assert world.cycle() == []
    add(world, pod("db", labels={"app": "db"}, on="n0", phase="Running"))
    assert placements(world.cycle()) == {"f": "n0"}


def test_a_pod_is_woken_by_a_pod_that_goes_from_another_node() -> None:
    world = world_of(zoned("a0", "a"), zoned("b0", "b"))
    world.add_pod(pod("big", cpu="4", on="b0", phase="Running"))
    add(world, *(pod(f"w{number}", labels={"app": "web"}, on="a0", phase="Running") for number in range(2)))
    add(world, with_spread(pod("p", labels={"app": "web"}), spread()))
    assert placements(world.cycle()) == {}
    world.wait(2)
    world.drop_pod("w0")
    world.drop_pod("w1")
    world.read()
    assert placements(world.cycle()) == {"p": "a0"}


def test_labels_that_change_on_a_running_pod_count_at_once() -> None:
    world = world_of(zoned("n0", "a"))
    add(world, pod("runs", labels={"app": "web"}, on="n0", phase="Running"))
    add(world, pod("p", labels={"app": "web"}, affinity=apart()))
    assert placements(world.cycle()) == {}
    world.wait(2)
    add(world, pod("runs", labels={"app": "other"}, on="n0", phase="Running"))
    assert placements(world.cycle()) == {"p": "n0"}


@settings(max_examples=examples(120), deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True).flatmap(
        lambda numbers: st.tuples(*(nodes(number) for number in numbers))
    ),
    st.lists(pods("p"), min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=8),
)
def test_a_batch_places_each_pod_where_it_would_go_alone(
    drawn: Sequence[Node], templates: list[Pod], order: list[int]
) -> None:
    batches = []
    for batch in (256, 1):
        world = world_of(*drawn)
        for number, which in enumerate(order):
            template = templates[which % len(templates)]
            metadata = msgspec.structs.replace(template.metadata, name=f"q{number}", uid=f"q{number}")
            world.add_pod(msgspec.structs.replace(template, metadata=metadata))
        world.read()
        batches.append(placements(world.cycles(batch)))
    assert batches[0] == batches[1]
