"""The ceiling of GPU allocation: an upper bound that small clusters reach, and the patterns of shares."""

from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.packing.ceiling import NodeGroup, PodGroup, best_pattern, ceiling_percent
from tests.support.hypothesis_examples import examples

GIB = 1 << 30
ANYWHERE = frozenset((0,))


@given(st.dictionaries(st.sampled_from((20, 25, 30, 40, 50, 60, 75)), st.integers(1, 50), min_size=1, max_size=4))
@settings(max_examples=examples(50), deadline=None)
def test_the_best_pattern_is_that_of_all_lists_of_shares(prices: dict[int, int]) -> None:
    lists = (each for size in range(1, 6) for each in combinations_with_replacement(prices, size))
    best = max(sum(prices[share] for share in each) for each in lists if sum(each) <= 100)
    value, pattern = best_pattern({share: float(price) for share, price in prices.items()})
    assert value == pytest.approx(best)
    assert sum(share * number for share, number in pattern) <= 100
    assert sum(prices[share] * number for share, number in pattern) == best


def ceiling(nodes: list[NodeGroup], pods: list[PodGroup]) -> float | None:
    pytest.importorskip("highspy", reason="the solver HiGHS is not installed")
    return ceiling_percent(nodes, pods)


def test_shares_are_limited_by_the_patterns_in_which_they_fit_on_a_card() -> None:
    nodes = [NodeGroup(1, 64_000, 256 * GIB, 2)]
    pods = [PodGroup(1000, GIB, 1, 60, ANYWHERE, 0, 10), PodGroup(1000, GIB, 1, 30, ANYWHERE, 0, 1)]
    assert ceiling(nodes, pods) == pytest.approx(150)  # 60 + 30 and 60


def test_cards_that_the_cpu_cannot_feed_are_not_counted() -> None:
    nodes = [NodeGroup(2, 8_000, 256 * GIB, 4)]
    assert ceiling(nodes, [PodGroup(4000, GIB, 1, 100, ANYWHERE, 0, 10)]) == pytest.approx(400)


def test_a_pod_with_more_cards_than_a_node_has_is_not_placed() -> None:
    nodes = [NodeGroup(4, 64_000, 256 * GIB, 2)]
    assert ceiling(nodes, [PodGroup(1000, GIB, 4, 100, ANYWHERE, 0, 1)]) == pytest.approx(0)


def test_required_pods_without_a_node_have_no_ceiling() -> None:
    nodes = [NodeGroup(1, 64_000, 256 * GIB, 2)]
    assert ceiling(nodes, [PodGroup(1000, GIB, 1, 100, ANYWHERE, 3, 0)]) is None
