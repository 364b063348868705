"""Levels shared at once, and wide levels, get what each gets alone, to the last unit."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from services.quota_ledger.runtime.fair_share import Child, scaled_minima, share
from services.quota_ledger.runtime.fair_share_batch import LARGEST, LARGEST_SUM, Levels, compute, fits
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.kube.elastic_quota import ROOT, DeclaredQuota
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
    batch = Levels(capacity, cells[0], cells[1], cells[2], lends, scales)
    assert fits(batch).all()
    found = compute(batch)
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
def test_a_level_with_an_amount_that_is_too_large_is_left_to_the_caller(large: int) -> None:
    ones = one_level_each(1, 2)
    two = np.array([[1, large]])
    assert fits(ones._replace(capacity=two[0])).tolist() == [True, False]
    assert fits(ones._replace(demands=two)).tolist() == [True, False]
    assert fits(ones._replace(minima=two)).tolist() == [True, False]


def test_a_level_whose_weights_add_up_to_too_much_is_left_to_the_caller() -> None:
    ones = one_level_each(2, 1)
    assert fits(ones._replace(weights=ones.weights * (LARGEST_SUM // 4))).all()
    assert not fits(ones._replace(weights=ones.weights * (LARGEST_SUM // 2))).any()


def one_level_each(children: int, levels: int) -> Levels:
    ones = np.ones((children, levels), np.int64)
    return Levels(ones[0], ones, ones, ones, ones > 0, ones[0] > 0)


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 2**32), st.integers(300, 700), st.permutations([2**14, 2**40, 2**60, 2**60]))
def test_a_wide_level_is_its_resources_one_by_one(seed: int, width: int, largest: list[int]) -> None:
    """With the largest amounts, one resource is computed with arrays and one without, or both without."""
    random = Random(seed)
    size = {"cpu": largest[0], "memory": largest[1]}
    tree = QuotaTree()
    choices = {name: [each, width * each // 3, width * each] for name, each in size.items()}
    capacity = {name: min(random.choice(each), 2**63 - 1) for name, each in choices.items()}
    tree.set_total(capacity)
    for number in range(width):
        limit = {name: random.randint(0, each) for name, each in size.items()}
        weight = {name: random.choice([0, random.randint(0, 9), each]) for name, each in limit.items()}
        minima = {name: random.choice([0, each // width, each]) for name, each in limit.items()}
        lends = random.random() < 0.8
        quota = DeclaredQuota(name=f"q{number:03}", parent=ROOT, is_parent=False, lends=lends, max=limit, min=minima)
        tree.add_quota(replace(quota, weight=weight))
        tree.add_request(quota.name, {name: random.randint(0, each) for name, each in size.items()}, {})
    assert tree.refresh_runtimes() > 0
    children = tree.sharing_children(ROOT)
    for name in size:
        floors = scaled_minima(capacity, [{name: info.declared.min[name]} for info in children])
        own = [each[name] for each in floors]
        assert [info.scaled_min[name] for info in children] == own
        parts = [
            Child(info.name, floor, info.demand.get(name, 0), info.declared.weight[name], info.lends)
            for info, floor in zip(children, own, strict=True)
        ]
        assert [info.runtime[name] for info in children] == share(capacity[name], parts)


def test_quotas_without_any_amount_have_no_runtime() -> None:
    tree = QuotaTree()
    tree.set_total({"cpu": 10})
    tree.add_quota(DeclaredQuota(name="above", parent=ROOT, is_parent=True, lends=True))
    tree.add_quota(DeclaredQuota(name="below", parent="above", is_parent=False, lends=True))
    assert not tree.compute_delta()
    assert tree.quotas["below"].runtime == {}
