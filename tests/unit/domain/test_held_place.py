"""The reasons for which a Reservation no longer holds the destination of an eviction."""

import pytest

from shared.domain.held_place import lost_place
from tests.support.reservations import Json, reservation

USED = {"phase": "Available", "nodeName": "n", "currentOwners": [{"namespace": "d", "name": "y", "uid": "y"}]}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({**reservation("r"), "status": {"phase": "Available", "nodeName": "n"}}, ""),
        (None, "is gone"),
        ({**reservation("r"), "status": USED}, "is used by d/y"),
        ({**reservation("r"), "status": {"phase": "Failed"}}, "is Failed"),
        (
            {**reservation("r"), "spec": {"owners": "all"}},
            "cannot be read: spec.owners: expected a list, got a string",
        ),
    ],
)
def test_a_place_that_is_lost_is_named_with_the_reason(body: Json | None, why: str) -> None:
    found = lost_place("r", body)
    assert found == (f"Reservation r, which held its destination, {why}" if why else "")
