"""Levels shared at once get what each gets alone, to the last unit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.quota_ledger.runtime.fair_share import Child, scaled_minima, share
from services.quota_ledger.runtime.fair_share_batch import LARGEST, compute
from tests.support.hypothesis_examples import examples

SIZES = st.one_of(st.integers(0, 12), st.integers(0, 2**33), st.integers(0, 2**44))


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-5, 2**46) | st.integers(0, 40),
            st.lists(st.tuples(SIZES, SIZES, SIZES, st.booleans()), min_size=1, max_size=9),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_a_batch_is_its_levels_one_by_one(
    levels: list[tuple[int, list[tuple[int, int, int, bool]], bool]],
) -> None:
    width = max(len(children) for _, children, _ in levels)
    cells = np.zeros((3, width, len(levels)), np.int64)
    lends = np.ones((width, len(levels)), np.bool_)
    for column, (_, children, _) in enumerate(levels):
        for row, (demand, own, weight, lend) in enumerate(children):
            cells[:, row, column] = demand, own, weight
            lends[row, column] = lend
    capacity = np.array([level[0] for level in levels], np.int64)
    scales = np.array([level[2] for level in levels], np.bool_)
    found = compute(capacity, cells[0], cells[1], cells[2], lends, scales)
    assert found is not None
    for column, (amount, children, scaled) in enumerate(levels):
        minima = [{"cpu": own} for _, own, _, _ in children]
        scaled_mins = [each["cpu"] for each in (scaled_minima({"cpu": amount}, minima) if scaled else minima)]
        alone = share(
            amount,
            [
                Child(f"{index:02}", floor, demand, weight, lend)
                for index, ((demand, _, weight, lend), floor) in enumerate(zip(children, scaled_mins, strict=True))
            ],
        )
        assert found[0][: len(children), column].tolist() == scaled_mins
        assert found[1][: len(children), column].tolist() == alone


@pytest.mark.parametrize("large", [LARGEST + 1, 2**62])
def test_what_is_too_large_is_left_to_the_caller(large: int) -> None:
    one = np.ones((1, 1), np.int64)
    assert compute(np.array([large]), one, one, one, one > 0, np.array([True])) is None
