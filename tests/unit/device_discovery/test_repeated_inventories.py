"""Repeated inventories, and the rate of changes."""

import pytest

from services.device_discovery.repeated_inventory_check_and_rate_limit import ChangeBudget, NodeInventory
from shared.agents.device_inventory import BadInventory, Inventory, decode
from tests.support.discovery_log import BEGAN, gpu, message


def inventory(minor: int = 0, boot: str = "b", seq: int = 1, at_s: int = 0) -> Inventory:
    return decode(message(gpu(minor), boot=boot, seq=seq, at_ns=BEGAN + at_s * 10**9), "n")


def newest(one: Inventory, *, completely: bool = True) -> NodeInventory:
    known = NodeInventory(ChangeBudget(10, 2, 0), 0)
    known.accept(one, completely=completely)
    return known


def test_equal_content_is_repeated_in_this_run_and_in_the_next_one() -> None:
    known = newest(inventory())
    assert known.is_repeated(inventory(seq=2, at_s=60))
    assert known.is_repeated(inventory(boot="c", at_s=90))
    assert not known.is_repeated(inventory(1, boot="c", seq=2, at_s=120))


def test_a_late_message_of_this_run_counts_as_repeated() -> None:
    assert newest(inventory(seq=7)).is_repeated(inventory(1, seq=6))


def test_a_late_message_of_another_run_is_rejected() -> None:
    with pytest.raises(BadInventory, match="is before the newest inventory of the node's other run"):
        newest(inventory(boot="c", at_s=60)).is_repeated(inventory(1, boot="b", seq=6, at_s=30))


def test_content_that_was_not_decided_completely_counts_again() -> None:
    assert not newest(inventory(), completely=False).is_repeated(inventory())


def test_changes_are_spent_and_come_back_at_their_interval() -> None:
    budget = ChangeBudget(10, 2, 0)
    assert [budget.spend(now_s) for now_s in (0, 0, 0, 9, 11, 12, 100, 100, 100)] == [
        True, True, False, False, True, False, True, True, False,
    ]  # fmt: skip
