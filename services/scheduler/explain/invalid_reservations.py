"""Reservations that cannot be placed, or that no pod may use, as they are written: they have no reserve pod, so the queue
does not have them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.watched_api_resources import RESERVATIONS
from shared.domain.reservation import UnreadableReservation, problem_of, read_reservation


class RejectedReservation(NamedTuple):
    """One of them.

    Attributes:
        created: its creation, as the object has it; empty where it has none.
        node: where it holds capacity all the same; empty for one that is not placed.
        problem: what is wrong with it.
    """

    name: str
    uid: str
    created: str
    node: str
    problem: str


def rejected_reservations(view: SchedulerState) -> Iterator[RejectedReservation]:
    """Yields them by name, without those that have ended."""
    for name, body in sorted(view.objects.get(RESERVATIONS, {}).items()):
        try:
            found = read_reservation(body)
        except UnreadableReservation as error:
            metadata = body.get("metadata") or {}
            uid, created = (str(metadata.get(field, "")) for field in ("uid", "creationTimestamp"))
            yield RejectedReservation(name, uid, created, "", str(error))
            continue
        if not found.is_ended and (problem := problem_of(found)):
            created = found.metadata.creation_timestamp or ""
            yield RejectedReservation(name, found.metadata.uid, created, found.status.node_name, problem)
