"""Suspects, ranked by the correlation of their activity with a pod's signals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.node_agent.interference.suspects import PodSample, correlation, suspects

Samples = dict[str, PodSample]


def rounds(signal: str, slowed: list[float], **activity: list[float | None]) -> list[Samples]:
    """Rounds with the pod `web`, and neighbours; None: the neighbour is not there. Names with `ls` are not best effort."""
    found = []
    for index, value in enumerate(slowed):
        here = {"web": PodSample("web", "d/web", "d/Pod/web", best_effort=False, signals={signal: value})}
        for name, values in activity.items():
            if (size := values[index]) is not None:
                here[name] = PodSample(
                    name, f"d/{name}", f"d/Pod/{name}", best_effort="ls" not in name, activity={"cpu": size, "io": 0.0}
                )
        found.append(here)
    return found


SLOWED = [1.0, 1.0, 2.0, 9.0, 10.0, 9.0, 11.0]
BURNS: list[float | None] = [0.0, 0.0, 200.0, 900.0, 1000.0, 900.0, 1100.0]


def test_neighbours_are_ranked_by_correlation_and_only_best_effort_ones() -> None:
    noisy: list[float | None] = [100.0, 0.0, 900.0, 700.0, 1000.0, 400.0, 1100.0]
    steady: list[float | None] = [500.0] * 7
    found = suspects("web", ["schedulingLatency"], rounds("schedulingLatency", SLOWED, burn=BURNS, noisy=noisy, steady=steady, ls=BURNS), 30)  # fmt: skip
    assert [each.pod for each in found] == ["d/burn", "d/noisy"]
    assert found[0].correlation_percent == 99
    assert (found[0].signal, found[0].activity, found[0].value) == ("schedulingLatency", "cpu", 1100.0)
    assert found[0].correlation_percent > found[1].correlation_percent


def test_a_neighbour_that_came_later_had_no_activity_before() -> None:
    late: list[float | None] = [None, None, None, 900.0, 900.0, 900.0, 900.0]
    [found] = suspects("web", ["cpi"], rounds("cpi", SLOWED, late=late), 50)
    assert found.correlation_percent > 90


def test_a_neighbour_that_has_gone_is_no_suspect_any_more() -> None:
    gone: list[float | None] = [0.0, 0.0, 200.0, 900.0, 1000.0, 900.0, None]
    assert suspects("web", ["cpi"], rounds("cpi", SLOWED, gone=gone), 1) == ()


def test_activity_too_small_to_matter_and_of_another_resource_is_none() -> None:
    small: list[float | None] = [None if size is None else size / 100 for size in BURNS]
    assert suspects("web", ["cpi"], rounds("cpi", SLOWED, small=small), 1) == ()
    assert suspects("web", ["ioPressure"], rounds("ioPressure", SLOWED, burn=BURNS), 1) == ()


def test_a_signal_that_falls_with_activity_has_no_suspect() -> None:
    assert suspects("web", ["cpi"], rounds("cpi", [12 - each for each in SLOWED], burn=BURNS), 1) == ()
    assert suspects("web", ["cpi"], [], 1) == ()


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), max_size=60))
def test_a_correlation_is_within_its_bounds_and_symmetric(pairs: list[tuple[float, float]]) -> None:
    found = correlation(pairs)
    assert -1 <= found <= 1
    assert correlation([(y, x) for x, y in pairs]) == pytest.approx(found, abs=1e-6)


@given(
    st.lists(st.integers(0, 10_000), min_size=5, max_size=60, unique=True), st.integers(1, 100), st.integers(0, 1000)
)
def test_a_line_is_correlated_in_full(xs: list[int], slope: int, start: int) -> None:
    assert correlation([(x, slope * x + start) for x in xs]) == pytest.approx(1, abs=1e-6)
    assert correlation([(x, -slope * x) for x in xs]) == pytest.approx(-1, abs=1e-6)
    assert correlation([(x, 0.1 + slope) for x in xs]) == 0
