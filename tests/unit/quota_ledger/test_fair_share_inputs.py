"""The inputs of the fair share hold the newest amounts while quotas and resources come and go."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.quota_ledger.runtime.fair_share_inputs import DEMANDS, LARGEST, MINIMA, FairShareInputs

NAMES = ("cpu", "memory", "gpu", "pods", "rdma")
SIZES = st.one_of(st.integers(-5, 5), st.integers(-(2**70), 2**70))
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), SIZES)


@given(st.lists(st.tuples(st.integers(0, 40), AMOUNTS, st.booleans()), max_size=60))
def test_a_matrix_holds_the_amounts_written_last(steps: list[tuple[int, dict[str, int], bool]]) -> None:
    matrix, rows = FairShareInputs(), dict[int, int]()
    written: dict[int, dict[str, int]] = {}
    for quota, amounts, goes in steps:
        if goes and quota in rows:
            matrix.release(rows.pop(quota))
            del written[quota]
            continue
        if quota not in rows:
            rows[quota] = matrix.take()
            assert not matrix.read(DEMANDS, np.array([rows[quota]]), NAMES).any(), "nothing of who was there before"
        matrix.put(DEMANDS, rows[quota], amounts)
        written[quota] = amounts
    found = matrix.read(DEMANDS, np.array([rows[quota] for quota in written], np.intp), NAMES)
    expected = [[max(-LARGEST, min(each.get(name, 0), LARGEST)) for name in NAMES] for each in written.values()]
    assert found.tolist() == expected
    assert not matrix.read(MINIMA, np.array(list(rows.values()), np.intp), NAMES).any(), "kinds are apart"
