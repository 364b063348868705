"""The choice of a network domain: the spec's worked examples by number, and preferred layers."""

from collections.abc import Sequence

import numpy as np
import pytest

from services.scheduler.cache.network_domains import domains_of
from services.scheduler.cycle.network_domain_choice import DomainChoice, Wish, wish_of
from shared.domain.network_topology import GatherSpec
from tests.unit.scheduler.network_worlds import TREE

DOMAINS = domains_of(["spine", "rack"], {row: (*above, name) for row, (name, above) in enumerate(TREE.items())})
MUST_SPINE = GatherSpec(must=frozenset({"spine"}))
MUST_RACK = GatherSpec(must=frozenset({"rack"}))
RACK_4 = GatherSpec(must=frozenset({"spine"}), multiples=(("rack", 4),))
NODE_2 = GatherSpec(must=frozenset({"spine"}), multiples=(("NodeTopologyLayer", 2),))


def choice_of(
    slots: Sequence[int], spec: GatherSpec, related: Sequence[int] = (), scores: Sequence[int] = (0,) * 5
) -> DomainChoice:
    wish = wish_of(spec, DOMAINS)
    assert isinstance(wish, Wish)
    near = np.array(related, np.int64) if related else None
    return DomainChoice(DOMAINS, wish, np.array(slots, np.int64), near, np.array(scores, np.int64))


def shares(choice: DomainChoice, desired: int, within: int | None = None) -> list[tuple[str, int]]:
    found = choice.choose(desired, within)
    return [] if found is None else [(DOMAINS.names[-1][place], pods) for place, pods in found.shares]


@pytest.mark.parametrize(
    ("slots", "spec", "desired", "related", "expected"),
    [
        pytest.param([4, 2, 3, 8, 0], MUST_SPINE, 6, (), [("n4", 6)], id="1"),
        pytest.param([4, 2, 3, 5, 3], MUST_SPINE, 6, (), [("n1", 4), ("n2", 2)], id="2"),
        pytest.param([4, 2, 3, 5, 3], MUST_RACK, 9, (), [], id="3 rack"),
        pytest.param([4, 2, 3, 5, 3], MUST_SPINE, 9, (), [("n1", 4), ("n2", 2), ("n3", 3)], id="3 spine"),
        pytest.param([4, 2, 3, 5, 3], GatherSpec(), 12, (), [("n1", 4), ("n2", 2), ("n3", 3), ("n4", 3)], id="4"),
        pytest.param([4, 2, 3, 5, 3], RACK_4, 6, (), [], id="5 of 6"),
        pytest.param([4, 2, 3, 5, 3], RACK_4, 8, (), [("n4", 5), ("n5", 3)], id="5 of 8"),
        pytest.param([4, 2, 3, 5, 3], MUST_SPINE, 6, (0, 0, 0, 1, 0), [("n4", 5), ("n5", 1)], id="6"),
        pytest.param([4, 2, 3, 5, 3], NODE_2, 8, (), [("n1", 4), ("n2", 2), ("n3", 2)], id="7"),
    ],
)
def test_worked_examples_of_the_spec(
    slots: list[int], spec: GatherSpec, desired: int, related: tuple[int, ...], expected: list[tuple[str, int]]
) -> None:
    assert shares(choice_of(slots, spec, related), desired) == expected


def test_the_largest_domain_of_the_required_layer_is_the_nearest_one() -> None:
    domain, slots = choice_of([4, 2, 3, 5, 3], MUST_RACK).largest(None)
    assert (DOMAINS.title(*domain), slots) == ("rack/R3", 8)
    assert choice_of([4, 2, 3, 5, 3], MUST_SPINE).largest(1)[1] == 8


def test_only_the_domain_that_holds_the_gang_already_is_used() -> None:
    assert shares(choice_of([4, 2, 3, 5, 3], MUST_SPINE), 6, within=1) == [("n4", 5), ("n5", 1)]
    assert shares(choice_of([4, 2, 3, 5, 3], MUST_SPINE), 9, within=1) == []


def test_equal_nodes_are_chosen_by_score_then_by_name() -> None:
    assert shares(choice_of([2, 2, 2, 2, 2], GatherSpec(), scores=(1, 1, 1, 3, 7)), 2) == [("n3", 2)], (
        "its rack is fuller"
    )
    assert shares(choice_of([2, 2, 0, 2, 2], GatherSpec(), scores=(1, 1, 9, 3, 7)), 2) == [("n5", 2)]
    assert shares(choice_of([2, 2, 0, 2, 2], GatherSpec()), 2) == [("n1", 2)]


def test_preferred_layers_take_the_fewest_domains_of_them() -> None:
    slots = [6, 0, 3, 5, 3]  # racks 6, 3 and 8; spines 9 and 8
    packed = [("n1", 6), ("n3", 3), ("n4", 1)]
    assert shares(choice_of(slots, GatherSpec()), 10) == packed, "the fuller spine first: three racks"
    prefers_racks = GatherSpec(prefer=frozenset({"rack"}))
    assert shares(choice_of(slots, prefers_racks), 10) == [("n4", 5), ("n5", 3), ("n1", 2)], "two racks"
    both = GatherSpec(prefer=frozenset({"spine", "rack"}))
    assert shares(choice_of(slots, both), 10) == packed, "the outer one of two preferred layers counts first"
    assert shares(choice_of(slots, GatherSpec(prefer=frozenset({"unknown"}))), 10) == packed
    tight = choice_of([2, 2, 2, 2, 1], GatherSpec(must=frozenset({"spine"}), prefer=frozenset({"rack"})))
    assert shares(tight, 3) == [("n4", 2), ("n5", 1)]


def test_a_spine_that_needs_fewer_racks_comes_before_a_fuller_one() -> None:
    tree = domains_of(
        ["spine", "rack"],
        {0: ("A", "A1", "a1"), 1: ("A", "A2", "a2"), 2: ("A", "A3", "a3"), 3: ("B", "B1", "b1"), 4: ("B", "B2", "b2")},
    )
    wish = wish_of(GatherSpec(must=frozenset({"spine"}), prefer=frozenset({"rack"})), tree)
    assert isinstance(wish, Wish)
    slots, zero = np.array([2, 2, 2, 4, 3], np.int64), np.zeros(5, np.int64)
    assert [share.place for share in DomainChoice(tree, wish, slots, None, zero).choose(6, None).shares] == [3, 4]  # type: ignore[union-attr]
    plain = Wish(1, (), (1, 1, 1, 1))
    assert [share.place for share in DomainChoice(tree, plain, slots, None, zero).choose(6, None).shares] == [0, 1, 2]  # type: ignore[union-attr]


def test_a_node_that_takes_fewer_pods_changes_the_domains_above_it() -> None:
    choice = choice_of([4, 2, 3, 5, 3], MUST_SPINE)
    choice.limit(1, 1)  # n2
    assert shares(choice, 6) == [("n4", 5), ("n5", 1)]
    choice.limit(3, 1)  # n4
    assert shares(choice, 6) == [("n1", 4), ("n2", 1), ("n3", 1)]
    assert shares(choice, 9) == []
    assert choice.largest(None)[1] == 8


def test_a_closed_candidate_is_left_out() -> None:
    choice = choice_of([4, 2, 3, 5, 3], MUST_SPINE)
    first = choice.choose(6, None)
    assert first is not None
    choice.close(first.domain)
    assert shares(choice, 6) == [("n4", 5), ("n5", 1)]


def test_a_required_layer_that_the_tree_lacks_is_named() -> None:
    assert wish_of(GatherSpec(must=frozenset({"pod", "spine"})), DOMAINS) == "pod"
