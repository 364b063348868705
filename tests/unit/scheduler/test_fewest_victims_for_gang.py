"""The fewest victims for a gang: options of a node, and the nodes with the least loss, compared with trying all."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.cycle.fewest_victims_for_gang import (
    NodeOptions,
    Option,
    PotentialVictim,
    least_loss,
    options_of,
    slots_of,
)


def victim(uid: str, cpu: int, rank: int = 0, job: str = "") -> PotentialVictim:
    return PotentialVictim(uid, np.array([cpu, 1]), rank, job)


def options(cpu: int, size: int, *victims: PotentialVictim, most: int = 9) -> dict[int, tuple[str, ...]]:
    free, sizes = np.array([cpu, 100]), np.array([size, 1])
    found = options_of(free, sizes, victims, slots_of(free, sizes), most)
    return {option.pods: option.victims for option in found}


def test_worked_example_3_puts_back_the_most_important_pods_that_still_leave_capacity() -> None:
    there = victim("v1", 2, 1), victim("v2", 2, 0, "a"), victim("v3", 4, 0, "b")
    assert options(0, 3, *there, most=1) == {1: ("v3",)}


def test_more_pods_may_need_no_more_victims() -> None:
    assert options(0, 4, victim("v", 8)) == {1: ("v",), 2: ("v",)}
    assert options(5, 4, victim("v", 8)) == {1: ("v",), 2: ("v",)}, "beyond the pod that fits at present"
    assert options(0, 9, victim("v", 8)) == {}


def test_worked_example_1_counts_each_job_once_by_its_highest_rank() -> None:
    [a] = options_of(np.array([0, 9]), np.array([3, 1]), [victim("y", 1, 1, "y"), victim("x1", 1, 0, "x"), victim("x2", 1, 0, "x")], 0, 1)  # fmt: skip
    [b] = options_of(np.array([0, 9]), np.array([3, 1]), [victim("z", 3, 2, "z")], 0, 1)
    [c] = options_of(np.array([0, 9]), np.array([3, 1]), [victim("w", 3, 0, "w")], 0, 1)
    assert c.loss < a.loss < b.loss
    chosen = least_loss([NodeOptions(0, (a,)), NodeOptions(1, (b,)), NodeOptions(2, (c,))], 2)
    assert chosen is not None
    assert chosen[1] == {0: a, 2: c}


def test_worked_examples_4_5_and_6() -> None:
    nodes = [NodeOptions(row, (Option(1, (f"v{row}",), 1), Option(2, (f"v{row}",), 1))) for row in (0, 1)]
    two = least_loss(nodes, 2)
    assert two is not None
    assert list(two[1]) == [0], "both on the first node: one victim"
    three = least_loss(nodes, 3)
    assert three is not None
    assert sorted(three[1]) == [0, 1], "three do not fit on one node"
    assert least_loss([NodeOptions(0, ())], 2) is None


def plain_least_loss(nodes: Sequence[NodeOptions], missing: int) -> int | None:
    """Tries every choice of options."""
    losses = [
        sum(option.loss for option in choice)
        for choice in product(*((Option(0, (), 0), *node.options) for node in nodes))
        if sum(option.pods for option in choice) >= missing
    ]
    return min(losses, default=None)


NODE = st.lists(st.integers(1, 6), max_size=3).map(
    lambda losses: tuple(Option(pods + 1, (), loss) for pods, loss in enumerate(losses))
)


@given(nodes=st.lists(NODE, max_size=4), missing=st.integers(1, 8))
def test_the_least_loss_is_that_of_trying_every_choice(nodes: list[tuple[Option, ...]], missing: int) -> None:
    offers = [NodeOptions(row, options) for row, options in enumerate(nodes)]
    found = least_loss(offers, missing)
    expected = plain_least_loss(offers, missing)
    assert (None if found is None else found[0]) == expected
    if found is not None:
        assert sum(option.pods for option in found[1].values()) >= missing
        assert sum(option.loss for option in found[1].values()) == expected
