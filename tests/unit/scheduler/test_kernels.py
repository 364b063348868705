"""Compiled passes over nodes: exact percents, and the same answer for some rows as for all of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.kernels.array_types_and_row_selection import Tile, at, selected
from services.scheduler.kernels.fit_allocation_balance import allocation_scores
from services.scheduler.kernels.merge_and_select_nodes import AS_IT_IS, DOWN, FEASIBLE, UP, add, best_rows

WHOLES = st.one_of(
    st.integers(1, 2**20),
    st.integers(2**30, 2**46 + 5),
    st.integers(2**46, 2**56),
    st.sampled_from((2**53 // 100, 2**53)),
)


def splitmix64(seed: int) -> int:
    z = (seed + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def taken(parts: list[int], wholes: list[int]) -> list[int]:
    """Returns parts of wholes in percent; computed as the rest of the opposite too, where that is the same."""
    whole, part = np.array([wholes], np.int64), np.array([parts], np.int64)
    which, one = selected(slice(0, len(parts)), len(parts)), np.ones(1, np.int64)
    found: list[int] = allocation_scores(*which, whole, part, part, 0 * one, -one, 0 * one, one, True).tolist()
    assert allocation_scores(*which, whole, whole - part, part, 0 * one, -one, 0 * one, one, False).tolist() == found
    return found


@given(st.lists(st.tuples(WHOLES, st.integers(0, 100), st.integers(-2, 2)), max_size=30))
def test_percents_are_exact_beside_every_whole_number(cases: list[tuple[int, int, int]]) -> None:
    wholes = [whole for whole, _, _ in cases]
    parts = [min(max(whole * percent // 100 + off, 0), whole) for whole, percent, off in cases]
    assert taken(parts, wholes) == [100 * part // whole for part, whole in zip(parts, wholes, strict=True)]


def test_a_part_just_below_a_percent_does_not_reach_it() -> None:
    whole = 2**53 // 100
    parts = [(percent * whole - 1) // 100 for percent in range(1, 101)]
    assert taken(parts, [whole] * 100) == [100 * part // whole for part in parts]


def test_nothing_is_a_share_of_nothing() -> None:
    assert taken([5, 5, 5], [0, -3, 10]) == [0, 0, 50]


def test_rows_are_looked_up_and_a_slice_is_everything_up_to_its_end() -> None:
    values = np.array([10, 11, 12, 13], np.int64)
    assert at(values, Tile(*selected(np.array([3, 0]), 4), 0)).tolist() == [13, 10]
    assert at(values, Tile(*selected(slice(0, 3), 4), 0)).tolist() == [10, 11, 12]
    assert at(values, Tile(*selected(slice(0, 3), 4), 1)).tolist() == [11, 12]
    assert at(values, Tile(*selected(np.zeros(0, np.int64), 4), 0)).tolist() == []


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=1, max_size=40), st.integers(1, 5))
def test_raw_scores_are_measured_against_the_highest_feasible_one(nodes: list[tuple[int, bool]], weight: int) -> None:
    raw = np.array([score for score, _ in nodes], np.int64)
    by = np.array([FEASIBLE if passes else 3 for _, passes in nodes], np.int64)
    highest = max((score for score, passes in nodes if passes), default=0)
    for how in (AS_IT_IS, UP, DOWN):
        total = np.full(len(nodes), 7, np.int64)
        assert add(total, raw, by, weight, how) == (0 if how == AS_IT_IS else highest)
        scaled = [score * 100 // highest if highest else 0 for score, _ in nodes]
        expected = {AS_IT_IS: raw.tolist(), UP: scaled, DOWN: [100 - score for score in scaled]}[how]
        assert total.tolist() == [7 + score * weight for score in expected]


@given(st.lists(st.integers(-1, 4), max_size=40), st.text(max_size=5))
def test_the_best_nodes_come_by_total_and_then_by_how_they_stand_for_the_pod(totals: list[int], uid: str) -> None:
    hashes = np.array([name_hash(f"node-{row}") for row in range(len(totals))], np.uint64)
    pod = name_hash(uid)
    standing = [splitmix64(int(node) ^ int(pod)) for node in hashes]
    order = sorted(
        (row for row, total in enumerate(totals) if total >= 0), key=lambda row: (-totals[row], -standing[row])
    )
    assert best_rows(np.array(totals, np.int64), hashes, pod, 3).tolist() == order[:3]
