"""What accounts declare stands again in a sheet, whatever comes, grows and goes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.quota_ledger.runtime.demand_matrix import DEMANDS, LARGEST, MINIMA, DemandMatrix

NAMES = ("cpu", "memory", "gpu", "pods", "rdma")
SIZES = st.one_of(st.integers(-5, 5), st.integers(-(2**70), 2**70))
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), SIZES)


@given(st.lists(st.tuples(st.integers(0, 40), AMOUNTS, st.booleans()), max_size=60))
def test_a_sheet_says_what_was_put_last(steps: list[tuple[int, dict[str, int], bool]]) -> None:
    sheet, lines = DemandMatrix(), dict[int, int]()
    said: dict[int, dict[str, int]] = {}
    for quota, amounts, goes in steps:
        if goes and quota in lines:
            sheet.release(lines.pop(quota))
            del said[quota]
            continue
        if quota not in lines:
            lines[quota] = sheet.take()
            assert not sheet.read(DEMANDS, np.array([lines[quota]]), NAMES).any(), "nothing of who was there before"
        sheet.put(DEMANDS, lines[quota], amounts)
        said[quota] = amounts
    found = sheet.read(DEMANDS, np.array([lines[quota] for quota in said], np.intp), NAMES)
    wanted = [[max(-LARGEST, min(each.get(name, 0), LARGEST)) for name in NAMES] for each in said.values()]
    assert found.tolist() == wanted
    assert not sheet.read(MINIMA, np.array(list(lines.values()), np.intp), NAMES).any(), "kinds are apart"
