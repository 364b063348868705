"""With lost, late and repeated messages and crashes no quota is exceeded by a stale view, nothing is charged twice,
and every charge ends.
"""

import os
from collections import Counter

import pytest

from tests.property.quota_simulation import World

HISTORIES = int(os.environ.get("KOORD_QUOTA_HISTORIES", "24"))
STEPS = 160


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_no_pod_is_placed_uncharged_or_charged_twice_and_all_is_given_back(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.drain()
    assert world.projection.pods == {}
    assert world.projection.balances.by_account.keys() <= {
        key for key in world.projection.balances.by_account if key[1] == "supply"
    }, "an account of pods is not at zero"
    for info in world.projection.trees[""].quotas.values():
        assert not any(info.used.values())


def test_the_histories_are_worth_something() -> None:
    """They hold charges, refusals, late requests, cycles without a response, preemption, and capacity that is kept."""
    seen: Counter[str] = Counter()
    for seed in range(12):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        world.drain()
        seen.update(charged=world.charged, refused=world.refused, late=world.late, unanswered=world.unanswered)
        seen.update(preempted=world.preempted, kept=world.kept)
    rare = seen.pop("preempted"), seen.pop("kept")
    assert min(seen.values()) >= 5, seen
    assert min(rare) >= 1, rare
