"""The descheduler on a cluster whose usage drifts: no victim without a destination, no limit exceeded, no pod moved twice
for one cause, none returned to the node it left.
"""

import os

import pytest

from services.descheduler.settings import DecisionSettings
from tests.support.descheduler_churn import Churn

SEEDS = 5
STEPS = 120


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_case_breaks_a_rule_while_usage_drifts(seed: int) -> None:
    churn = Churn(seed).run(STEPS)
    assert churn.violations == []


def test_the_histories_have_evictions_and_the_rules_have_an_effect() -> None:
    assert sum(Churn(seed).run(STEPS).evictions for seed in range(SEEDS)) > 0
    # The same histories without the rules against circles break them: the check sees what it is to see.
    careless = DecisionSettings(repeat_after_s=0, source_after_s=0)
    assert any(Churn(seed, careless).run(STEPS).violations for seed in range(SEEDS))


@pytest.mark.soak
def test_no_case_breaks_a_rule_in_ten_thousand_histories() -> None:
    first = int(os.environ.get("KOORD_SEED", "0"))
    for seed in range(first, first + 10_000):
        assert Churn(seed).run(STEPS).violations == [], seed
