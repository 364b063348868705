"""Results of DeviceShare by the number of a node's state: as if each were computed, and each computed once."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.plugins.device_share import results_by_state
from services.scheduler.plugins.device_share.results_by_state import ResultsByState
from tests.support.device_machines import GPU, devices, gpu_node, gpu_pod
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, unschedulable


@given(st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=20), max_size=12))
@settings(max_examples=examples(200), deadline=None)
def test_the_result_of_each_state_is_its_own_and_is_computed_once(lookups: list[list[int]]) -> None:
    results, computed = ResultsByState(), list[int]()
    for numbers in lookups:

        def find(place: int, numbers: list[int] = numbers) -> int:
            computed.append(numbers[place])
            return numbers[place] * 7

        assert results.of(np.array(numbers, np.int64), find).tolist() == [number * 7 for number in numbers]
    assert sorted(computed) == sorted({number for numbers in lookups for number in numbers})


def test_results_of_old_states_are_dropped_beyond_the_limit() -> None:
    results, computed = ResultsByState(), list[int]()

    def of(*numbers: int) -> list[int]:
        def find(place: int) -> int:
            computed.append(numbers[place])
            return numbers[place]

        found: list[int] = results.of(np.array(numbers, np.int64), find).tolist()
        return found

    limit = results_by_state.MAX_STATES
    of(*range(1, limit + 1))
    assert of(5, limit + 1) == [5, limit + 1]
    assert computed[limit:] == [limit + 1], "state 5 is in use and kept"
    assert of(6) == [6]
    assert computed[-1] == 6


def test_nodes_that_share_a_state_are_rejected_each_for_the_same_reason() -> None:
    world = World()
    for name in "abc":
        world.observe(devices(name, 2, rdma=0))
        world.add_node(gpu_node(name, 2))
    for pod in ("p", "q", "r"):
        world.add_pod(gpu_pod(pod, {GPU: "200"}))
        world.read()
        world.cycles()
    assert len({record.placed_node for record in world.view.pods.values()}) == 3
    world.add_pod(gpu_pod("late", {GPU: "100"}))
    world.read()
    late = unschedulable(world.cycles())["late"]
    assert late.code in ("InsufficientGpus", "InsufficientResource")
    assert "3 Insufficient" in late.message
