"""Baselines: usual values that fade, and are bounded in number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.node_agent.interference.baseline import MAX_WORKLOADS, Baseline, Baselines, WorkloadOnNodeType

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)
DAY = 86_400.0


@given(VALUES)
def test_before_anything_fades_it_is_mean_and_variance_of_the_samples(values: list[float]) -> None:
    found = Baseline()
    for value in values:
        found = found.learned(value, 2.0, 1e15)
    mean = sum(values) / len(values)
    assert found.mean == pytest.approx(mean, rel=1e-6, abs=1e-6)
    assert found.variance == pytest.approx(sum((each - mean) ** 2 for each in values) / len(values), rel=1e-5, abs=1e-3)
    assert found.learned_s == 2.0 * len(values)


@given(VALUES, st.floats(60, DAY))
def test_it_stays_within_its_samples_and_its_variance_is_never_negative(
    values: list[float], half_life_s: float
) -> None:
    found = Baseline()
    for value in values:
        found = found.learned(value, 2.0, half_life_s)
    assert min(values) * (1 - 1e-9) - 1e-9 <= found.mean <= max(values) * (1 + 1e-9) + 1e-9
    assert found.variance >= 0


def test_samples_lose_half_of_their_weight_in_a_half_life() -> None:
    found = Baseline(learned_s=1e9, mean=100.0)
    for _ in range(1800):
        found = found.learned(200.0, 2.0, 3600.0)
    assert found.mean == pytest.approx(150.0, rel=0.01)


def test_values_above_the_limit_move_it_by_the_half_life_alone_however_young_it_is() -> None:
    young = Baseline(learned_s=20.0, mean=100.0)
    assert young.outlived(1000.0, 2.0, DAY).mean == pytest.approx(100.0, rel=0.001)
    assert young.outlived(1000.0, 2.0, DAY).learned_s == 20.0
    assert young.learned(1000.0, 2.0, DAY).mean > 150


def test_the_limit_is_the_highest_of_percent_spread_and_floor() -> None:
    found = Baseline(mean=100.0, variance=400.0)
    assert found.limit(50, 2, 0) == 150.0
    assert found.limit(10, 4, 0) == 180.0
    assert found.limit(10, 1, 1000) == 1000
    assert found.limit(10, 4, 0, samples=4) == 140.0


def test_the_workload_unseen_for_longest_is_forgotten() -> None:
    found = Baselines()
    for number in range(MAX_WORKLOADS + 1):
        found.learn(WorkloadOnNodeType(f"d/Deployment/{number}", "m5"), "cpi", Baseline(1.0, 2.0), now_s=number)
        if number == 1:
            found.learn(WorkloadOnNodeType("d/Deployment/0", "m5"), "cpi", Baseline(1.0, 3.0), now_s=1_000)
    assert len(found.workloads) == MAX_WORKLOADS
    assert found.of(WorkloadOnNodeType("d/Deployment/0", "m5"), "cpi").mean == 3.0
    assert found.of(WorkloadOnNodeType("d/Deployment/1", "m5"), "cpi") == Baseline()
    assert found.of(WorkloadOnNodeType("d/Deployment/0", "c6"), "cpi") == Baseline()
