"""The place that a Reservation holds for the successor of a pod that is to be evicted."""

from collections.abc import Mapping

from shared.domain.reservation import UnreadableReservation, read_reservation


def lost_place(name: str, body: object) -> str:
    """Returns why a Reservation holds no place for the successor of a pod that is to be evicted; empty where it does.

    Args:
        body: the object as the API server has it now; None where it is gone.
    """
    if not isinstance(body, Mapping):
        return f"Reservation {name}, which held its destination, is gone"
    try:
        found = read_reservation(body)
    except UnreadableReservation as error:
        return f"Reservation {name}, which held its destination, cannot be read: {error.fault}"
    if owner := next(iter(found.status.current_owners), None):
        return f"Reservation {name}, which held its destination, is used by {owner.namespace}/{owner.name}"
    return "" if found.is_available else f"Reservation {name}, which held its destination, is {found.status.phase}"
