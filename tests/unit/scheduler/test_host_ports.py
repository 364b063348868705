"""Host ports of a cycle: equal to a whole copy of the index's counts, at the cost of the rows that change."""

from copy import deepcopy
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cache.host_ports import HostPorts, count_ports
from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.state.pod_equivalence_class import HostPort
from tests.support.executed_lines import steps_of
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, node, pod
from tests.unit.scheduler.plugin_harness import class_of

PORTS: tuple[HostPort, ...] = tuple(("0.0.0.0", "TCP", port) for port in (80, 443))


def table_of(nodes: int) -> NodeTable:
    """Nodes that each run a daemon with three host ports."""
    world = World()
    for number in range(nodes):
        world.add_node(node(f"n{number}"))
        world.add_pod(pod(f"daemon-{number}", on=f"n{number}", phase="Running", ports=(80, 443, 9100)))
    world.read()
    cache = world.indexed()
    cache.settle()
    return cache.table


@pytest.fixture(scope="module")
def tables() -> tuple[NodeTable, NodeTable]:
    return table_of(4), table_of(64)


def test_a_cycle_copies_no_ports_until_it_changes_them_however_many_nodes_have_some(
    tables: tuple[NodeTable, NodeTable],
) -> None:
    few, many = (steps_of(partial(CycleSnapshot, table))[1] for table in tables)
    assert few == many


def test_a_placement_copies_the_ports_of_its_node_alone(tables: tuple[NodeTable, NodeTable]) -> None:
    costs = []
    for table in tables:
        pod_class, before = class_of(pod("p", ports=(8080,))), deepcopy(table.ports)
        table.vector(pod_class)  # worked out once a class, before anything is counted
        snapshot = CycleSnapshot(table)
        costs.append(steps_of(partial(snapshot.place, pod_class, 1))[1])
        assert len(snapshot.ports.on(1)) == 4
        assert table.ports == before, "the index's counts stay as they are"
        assert all(held is table.ports[row] for row, held in snapshot.ports.items() if row != 1)
    assert costs[0] == costs[1]


Changes = list[tuple[int, list[HostPort]]]
changes = st.lists(st.tuples(st.integers(0, 3), st.lists(st.sampled_from(PORTS), min_size=1, unique=True)), max_size=8)


@settings(max_examples=examples(200), deadline=None)
@given(changes, changes, st.lists(st.integers(0, 7), max_size=6))
def test_it_is_what_a_whole_copy_would_be(before: Changes, placed: Changes, removed: list[int]) -> None:
    counts: dict[int, dict[HostPort, int]] = {}
    for row, ports in before:
        count_ports(counts.setdefault(row, {}), ports, +1)
    ours, whole = HostPorts(counts), deepcopy(counts)
    gone = [before[number] for number in dict.fromkeys(removed) if number < len(before)]
    for sign, moves in ((+1, placed), (-1, gone)):
        for row, ports in moves:
            ours.count(row, ports, sign)
            count_ports(whole.setdefault(row, {}), ports, sign)
    assert {row: set(held) for row, held in ours.items()} == {row: set(held) for row, held in whole.items()}
    assert all(set(ours.on(row)) == set(whole.get(row, ())) for row in range(5))
    assert bool(ours) == bool(whole)
