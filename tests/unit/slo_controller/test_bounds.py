"""Floors, caps, and zones that sum to no more than their node."""

from typing import Any

import pytest

from services.slo_controller.overcommit.batch_resources import BatchResources, FormulaTerms
from services.slo_controller.overcommit.configured_floor_and_cap import bounded
from services.slo_controller.overcommit.usage_sums import PodSums
from shared.domain.cpu_memory import ZERO, Amount
from shared.kube.quantity import NANO
from shared.kube.slo_config import ColocationStrategy, OvercommitLimits

TERMS = FormulaTerms(Amount(32 * NANO, 64 * NANO), ZERO, ZERO, Amount(2 * NANO, 0), PodSums())


def node(cpu: int, zones: dict[str, int]) -> BatchResources:
    """A node with zones; memory is as many bytes as there are milli-cores."""
    return BatchResources(
        cpu, cpu * NANO, TERMS, {name: BatchResources(size, size * NANO, TERMS, {}) for name, size in zones.items()}
    )


def after(batch: BatchResources, **limits: Any) -> tuple[int, dict[str, int]]:
    """The cpu of the node and of its zones."""
    found = bounded(batch, ColocationStrategy(koordstream=OvercommitLimits(**limits)), [])
    assert found is not None
    return found.cpu, {name: zone.cpu for name, zone in found.zones.items()}


def test_a_floor_is_at_most_the_capacity_that_is_not_reserved() -> None:
    assert after(node(1_000, {}), floor={"cpu": "200"}) == (30_000, {})


@pytest.mark.parametrize(("limits", "amount"), [({"floor": {"cpu": "16"}}, 16_000), ({"cap": {"cpu": "4"}}, 4_000)])
def test_zones_sum_to_a_node_that_is_raised_or_limited(limits: dict[str, dict[str, str]], amount: int) -> None:
    assert after(node(8_000, {"a": 6_000, "b": 2_000}), **limits) == (
        amount,
        {"a": amount * 3 // 4, "b": amount // 4},
    )


def test_zones_with_nothing_share_a_floor_equally() -> None:
    assert after(node(0, {"a": 0, "b": 0, "c": 0}), floor={"cpu": "10"})[1] == {"a": 3_333, "b": 3_333, "c": 3_334}


def test_zones_that_sum_to_more_than_the_node_are_scaled_down() -> None:
    assert after(node(8_000, {"a": 8_000, "b": 8_000}))[1] == {"a": 4_000, "b": 4_000}


def test_zones_that_sum_to_less_stay() -> None:
    assert after(node(8_000, {"a": 3_000, "b": 2_000}))[1] == {"a": 3_000, "b": 2_000}
