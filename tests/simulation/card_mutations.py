"""Faults of devices: cards that pods may not get are given to them, and shares of a card to two."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from services.device_discovery import decide_inventory, service
from services.scheduler.plugins.device_share import device_usage, devices_of_node
from shared.ingest.message_loop import Batch


def unhealthy_cards_take_pods() -> AbstractContextManager[Any]:
    offered = devices_of_node._offered
    return patch.object(devices_of_node, "_offered", lambda info, minor: offered(replace(info, health=True), minor))


def shares_of_cards_are_given_twice() -> AbstractContextManager[Any]:
    free = device_usage._free
    return patch.object(device_usage, "_free", lambda offered, _used, freed: free(offered, {}, freed))


def missing_cards_stay() -> AbstractContextManager[Any]:
    """Cards that an inventory lacks are believed to be there."""

    def kept(before: Any, checked: Any) -> Any:
        return {key: entry.found for key, entry in before.items() if key not in checked.devices}

    return patch.object(decide_inventory, "_kept_unhealthy", kept)


def failing_cards_wait_for_their_turn() -> AbstractContextManager[Any]:
    """A card that fails is recorded no sooner than other changes of its node."""
    return patch.object(service, "losses", lambda _drafts: [])


def inventories_that_wait_are_accepted() -> AbstractContextManager[Any]:
    """Of an inventory that waits for its turn the receipt says that it is in the log."""
    return patch.object(Batch, "keep", Batch.accept)


CARD_MUTATIONS = (
    unhealthy_cards_take_pods,
    shares_of_cards_are_given_twice,
    missing_cards_stay,
    failing_cards_wait_for_their_turn,
    inventories_that_wait_are_accepted,
)
