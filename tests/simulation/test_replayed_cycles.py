"""Worlds repeat their recorded cycles at their end; a cycle that is decided differently is found."""

from unittest.mock import patch

import pytest

from cli.dev.fault_simulation.plan import drawn
from cli.dev.fault_simulation.run_seeds import prepare
from cli.dev.fault_simulation.run_world import simulate
from services.scheduler import replayed_cycles
from services.scheduler.cycle.cycle import plan_cycle
from services.scheduler.quota.charge_of_cycle import LedgerResponse


@pytest.fixture(autouse=True, scope="module")
def prepared() -> None:
    prepare()


def test_a_cycle_that_decides_something_else_is_found() -> None:
    assert not simulate(704, drawn(704)).violations
    with patch.object(replayed_cycles, "plan_cycle", lambda cache, now_ns, _: plan_cycle(cache, now_ns, 1)):
        assert _differs(704)


def test_the_response_of_the_ledger_is_an_input() -> None:
    """A seed in which the ledger refuses pods."""
    with patch.object(replayed_cycles, "LedgerResponse", lambda charged_at, _: LedgerResponse(charged_at, {})):
        assert _differs(729)


def _differs(seed: int) -> bool:
    return any("is decided differently at" in text for text in simulate(seed, drawn(seed)).violations)
