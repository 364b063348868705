"""The numbers of an observation: equal numbers are equal bytes, whatever was written in between."""

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.state.packed_pod_observation import (
    NONE,
    Observation,
    first_observation,
    observation,
    observed_on_node,
    read_from_object,
    since,
)

instants = st.sampled_from([0, 0, 1, -1, 2**62, -(2**62)])
parts = st.tuples(instants, instants, instants, st.sampled_from([0, 0, 7, 2**32 - 1]))


def test_a_pod_that_was_not_observed_has_no_numbers() -> None:
    assert since(NONE) == 0
    assert observation(NONE) == Observation(0, 0, 0, 0, 0, 0)


@given(st.integers(1, 2**60), st.lists(st.tuples(st.none() | instants, parts), min_size=1, max_size=4))
def test_the_newest_numbers_are_read_and_their_bytes_do_not_depend_on_earlier_ones(
    first: int, steps: list[tuple[int | None, tuple[int, int, int, int]]]
) -> None:
    data = once = first_observation(first)
    node_since = 0
    for at_ns, numbers in steps:
        if at_ns is not None:
            node_since = at_ns
            data, once = observed_on_node(data, at_ns), observed_on_node(once, at_ns)
        data = read_from_object(data, *numbers)
    once = read_from_object(once, *steps[-1][1])
    assert observation(data) == Observation(first, node_since, *steps[-1][1])
    assert since(data) == first
    assert data == once
