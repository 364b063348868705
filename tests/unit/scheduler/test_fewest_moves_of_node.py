"""The bound of the moves that a node needs: as a search over all sets of its pods, by amounts."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.explain.fewest_moves_of_node import (
    fewest_moves,
    has_capacity,
    largest_share,
    requests_of,
    shortages,
    sums_of_largest,
)
from services.scheduler.queue.units import class_of
from tests.support.scheduling_world import World, node, pod
from tests.unit.scheduler.test_moves_that_admit_unit import running


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 60))
def test_the_bound_of_one_resource_is_the_size_of_the_smallest_set_of_pods_that_frees_enough(
    amounts: list[int], lacking: int
) -> None:
    sums = np.cumsum(np.sort(np.array([amounts]))[:, ::-1], axis=1)
    sets = (len(chosen) for size in range(1, len(amounts) + 1) for chosen in combinations(amounts, size) if sum(chosen) >= lacking)  # fmt: skip
    assert fewest_moves(np.array([lacking]), sums) == next(sets, len(amounts) + 1)


def test_a_node_that_lacks_no_amount_needs_one_move_at_least() -> None:
    assert fewest_moves(np.array([0, 0]), np.array([[5, 9], [1, 2]])) == 1


@pytest.mark.parametrize(("cpu", "bound", "share"), [("1", 1, 0.0), ("2", 1, 0.5), ("3", 2, 2 / 3), ("4", 4, 0.75)])
def test_amounts_of_the_nodes_are_read_as_a_cycle_has_them(cpu: str, bound: int, share: float) -> None:
    """A node of 4 cores with pods of 1.5, 0.5, 0.5 and 0.5 cores has one free."""
    world = World()
    world.add_node(node("a"))
    for number, size in enumerate(("1500m", "500m", "500m", "500m")):
        world.add_pod(running(f"p{number}", "a", size))
    world.add_pod(pod("large", cpu=cpu, memory=None))
    world.read()
    cache = world.indexed()
    cache.settle()
    snapshot, pod_class = CycleTransaction(cache, world.now_ns).snapshot, class_of(world.view.pods["large"])
    requests, rows = requests_of(snapshot, pod_class), np.array([cache.table.rows["a"]])
    lacking = shortages(snapshot, requests, rows)
    sums = sums_of_largest(snapshot, requests, [class_of(world.view.pods[f"p{number}"]) for number in range(4)])
    assert sums.tolist() == [[1500, 2000, 2500, 3000], [1, 2, 3, 4]]
    assert largest_share(lacking, requests) == [pytest.approx(share)]
    assert fewest_moves(lacking[0], sums) == bound
    assert has_capacity(snapshot, pod_class).tolist() == [cpu == "1"]
