"""Faults of moves: pods leave without a place, too many at once, and what is desired of jobs is forgotten."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import msgspec

from services.descheduler.migration import job_progress, job_reservation, job_steps
from services.descheduler.migration.eviction_step import evict
from services.descheduler.migration.migration_limits import MigrationLimits
from services.descheduler.state.descheduler_state import DeschedulerState
from tests.simulation.gang_and_reservation_mutations import both


def pods_leave_before_their_place_is_held() -> AbstractContextManager[Any]:
    """A job evicts its pod as soon as its Reservation is there, before the scheduler has found a node for it."""
    use = job_steps._use

    def hasty(step: Any, progress: Any, pod: Any, reservation: Any) -> None:
        if evict(step.state, step.args, step.limits, progress, pod, reservation.status.node_name, step.now_ns):
            use(step, progress, pod, reservation)

    return patch.object(job_steps, "_use", hasty)


def places_are_held_on_any_node() -> AbstractContextManager[Any]:
    """The place of a pod's successor may be held on the node that the pod leaves, and is used there."""
    placed, is_placed = job_reservation._placed, job_steps._is_placed
    anywhere = patch.object(job_reservation, "_placed", lambda template, *_: placed(template, "", ""))
    used = patch.object(job_steps, "_is_placed", lambda progress, _, found: is_placed(progress, None, found))
    return both(anywhere, used)


def limits_of_workloads_are_ignored() -> AbstractContextManager[Any]:
    return patch.object(MigrationLimits, "per_workload", lambda *_: "")


def members_leave_before_the_places_of_their_gang_are_held() -> AbstractContextManager[Any]:
    """A member of a gang leaves as soon as its own place is held, and others of its gang may find none."""
    return patch.object(job_steps, "waits_for", lambda *_: "")


def victims_for_a_waiting_unit_leave_one_by_one() -> AbstractContextManager[Any]:
    """A victim of a case for a waiting unit leaves as soon as its own place is held."""
    return patch.object(DeschedulerState, "jobs_together", lambda _: {})


def statuses_of_jobs_are_not_carried_forward() -> AbstractContextManager[Any]:
    """A status that was just decided differs from the same one as it is read from the log, and none seems the newest."""
    return patch.object(job_progress, "json_value", msgspec.to_builtins)


MIGRATION_MUTATIONS = (
    pods_leave_before_their_place_is_held,
    places_are_held_on_any_node,
    limits_of_workloads_are_ignored,
    members_leave_before_the_places_of_their_gang_are_held,
    victims_for_a_waiting_unit_leave_one_by_one,
    statuses_of_jobs_are_not_carried_forward,
)
