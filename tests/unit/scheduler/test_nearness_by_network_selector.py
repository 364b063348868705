"""Pods with a `network-topology-selector` are placed near the pods that have the same one."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cache.network_domains import domains_of
from services.scheduler.plugins.coscheduling.nearness_by_network_selector import nearness
from shared.domain.network_topology import SELECTOR
from shared.events.scheduling import CycleDecided
from shared.kube.pod import Pod
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, node, placements, pod
from tests.unit.scheduler.network_worlds import RACK, SPINE, network_world, observe_topology

NEAR = {SELECTOR: "training"}
CPUS = dict.fromkeys(("n1", "n2", "n3", "n4", "n5"), "8")


def running(name: str, on: str, selector: str = "training") -> Pod:
    return pod(name, cpu=None, memory=None, on=on, phase="Running", annotations={SELECTOR: selector})


def waiting(name: str) -> Pod:
    return pod(name, cpu="1", memory=None, annotations=NEAR)


def shares(world: World) -> Mapping[str, int]:
    """Node -> the share of Coscheduling in the total that was recorded for it, in the last cycle."""
    decided = [record.event for record in world.cycle() if isinstance(record.event, CycleDecided)]
    best = decided[-1].classes[-1].best
    return {each.node: each.plugin_scores["Coscheduling"] for each in best if "Coscheduling" in each.plugin_scores}


UPSTREAMS_TREE = {
    "node-8": ("s1", "b1"),
    "node-1": ("s1", "b1"),
    "node-9": ("s1", "b1"),
    "node-7": ("s1", "b2"),
    "node-2": ("s1", "b2"),
    "node-6": ("s2", "b3"),
    "node-3": ("s2", "b3"),
    "node-5": ("s2", "b4"),
    "node-4": ("s2", "b4"),
}
"""Node -> its spine and block, of the cluster that upstream orders in a test of its own."""


def test_the_order_of_upstreams_cluster() -> None:
    names = sorted(UPSTREAMS_TREE)
    domains = domains_of(("spine", "block"), {row: (*UPSTREAMS_TREE[name], name) for row, name in enumerate(names)})
    pods, feasible = np.zeros(len(names), np.int64), np.ones(len(names), np.bool_)
    for name in ("node-6", "node-7", "node-8"):
        pods[names.index(name)], feasible[names.index(name)] = 1, False
    found = nearness(domains, pods, feasible)
    ordered = sorted((name for name in names if feasible[names.index(name)]), key=lambda n: -found[names.index(n)])
    assert ordered == ["node-2", "node-1", "node-9", "node-3", "node-4", "node-5"]
    assert [int(found[names.index(name)]) for name in ordered] == [100, 80, 60, 40, 20, 0]


@pytest.mark.parametrize(("count", "expected"), [(1, [100]), (3, [100, 50, 0]), (4, [100, 67, 34, 0])])
def test_the_scores_of_the_specs_examples(count: int, expected: list[int]) -> None:
    domains = domains_of(("rack",), {row: ("R", f"n{row}") for row in range(count)})
    found = nearness(domains, np.zeros(count, np.int64), np.ones(count, np.bool_))
    assert found.tolist() == expected


def test_a_pod_goes_near_the_pods_of_its_selector_and_the_record_has_the_share() -> None:
    world = network_world(CPUS)
    world.add_pod(running("there", "n5"))
    world.add_pod(running("other", "n1", selector="serving"))
    world.add_pod(waiting("near"))
    world.read()
    assert shares(world) == {"n5": 100, "n4": 75, "n3": 50}
    assert world.view.pods[next(iter(u for u in world.view.pods if "near" in u))].placed_node == "n5"


def test_each_pod_draws_the_next_ones_of_its_cycle() -> None:
    world = network_world(dict.fromkeys(CPUS, "80"))
    for number in range(4):
        world.add_pod(waiting(f"p{number}"))
    world.read()
    assert len(set(placements(world.cycle()).values())) == 1, "all of them are on the node of the first"


def test_pods_without_a_selector_and_clusters_without_a_tree_have_no_score() -> None:
    world = network_world(CPUS)
    world.add_pod(running("there", "n5"))
    world.add_pod(pod("plain", cpu="1", memory=None))
    world.read()
    assert shares(world) == {}
    world = World()
    world.add_node(node("n1", cpu="8"))
    world.add_pod(waiting("near"))
    world.read()
    assert shares(world) == {}


def test_nodes_outside_the_tree_come_last() -> None:
    world = network_world({"n1": "8", "n4": "8"})
    world.add_node(node("n9", cpu="8"))
    world.add_pod(running("there", "n9"))
    world.add_pod(waiting("near"))
    world.read()
    assert shares(world) == {"n1": 100, "n4": 50, "n9": 0}


def _reference(paths: Mapping[int, tuple[str, ...]], pods: list[int], feasible: list[bool]) -> dict[int, int]:
    """Node by node, as upstream compares two of them."""

    def above(path: tuple[str, ...], depth: int) -> list[int]:
        return [row for row, other in paths.items() if other[:depth] == path[:depth]]

    def key(row: int) -> tuple[object, ...]:
        path = paths[row]
        depths = range(len(path), -1, -1)
        existing = [-sum(pods[each] for each in above(path, depth)) for depth in depths]
        offered = [sum(feasible[each] for each in above(path, depth)) for depth in depths]
        return (*existing, *offered, path[-1])

    ordered = sorted((row for row in paths if feasible[row]), key=key)
    last = len(ordered) - 1
    return {row: 100 - 100 * place // last if last else 100 for place, row in enumerate(ordered)}


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3), st.booleans()), min_size=1, max_size=12)
)
def test_the_order_is_that_of_comparing_two_nodes_at_a_time(nodes: list[tuple[int, int, int, bool]]) -> None:
    paths = {row: (f"s{s}", f"s{s}r{r}", f"n{row:02}") for row, (s, r, _, _) in enumerate(nodes)}
    pods, feasible = [each[2] for each in nodes], [each[3] for each in nodes]
    found = nearness(domains_of(("spine", "rack"), paths), np.array(pods), np.array(feasible))
    assert {row: int(found[row]) for row in paths if feasible[row]} == _reference(paths, pods, feasible)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.sampled_from(("training", "serving", "")), min_size=1, max_size=10), st.integers(0, 4))
def test_a_batch_places_as_cycles_of_one_pod(selectors: list[str], there: int) -> None:
    def placed(batch: int) -> dict[str, str]:
        world = World()
        for name, (spine, rack) in {"n1": ("S1", "R1"), "n2": ("S1", "R2"), "n3": ("S2", "R3")}.items():
            world.add_node(node(name, cpu="6", labels={SPINE: spine, RACK: rack}))
        observe_topology(world)
        world.add_pod(running("there", f"n{there % 3 + 1}"))
        for number, selector in enumerate(selectors):
            notes = {SELECTOR: selector} if selector else None
            world.add_pod(pod(f"p{number}", cpu="1", memory=None, annotations=notes))
        world.read()
        found: dict[str, str] = {}
        while here := placements(world.cycle(batch)):
            found |= here
        return found

    assert placed(1) == placed(64)
