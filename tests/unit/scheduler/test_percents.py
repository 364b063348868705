"""Percents by floats are the integers' own, at every border."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.percents import percents

WHOLES = st.one_of(
    st.integers(1, 2**20),
    st.integers(2**30, 2**46 + 5),
    st.integers(2**46, 2**56),
    st.sampled_from((2**53 // 100, 2**53)),
)


@given(st.lists(st.tuples(WHOLES, st.integers(0, 100), st.integers(-2, 2)), max_size=30))
def test_percents_are_exact_beside_every_whole_number(cases: list[tuple[int, int, int]]) -> None:
    wholes = [whole for whole, _, _ in cases]
    parts = [min(max(whole * percent // 100 + off, 0), whole) for whole, percent, off in cases]
    expected = [100 * part // whole for part, whole in zip(parts, wholes, strict=True)]
    assert percents(np.array(parts, np.int64), np.array(wholes, np.int64)).tolist() == expected


def test_a_part_just_below_a_percent_does_not_reach_it() -> None:
    whole = 2**53 // 100
    parts = [(percent * whole - 1) // 100 for percent in range(1, 101)]
    assert percents(np.array(parts), np.full(100, whole)).tolist() == [100 * part // whole for part in parts]
