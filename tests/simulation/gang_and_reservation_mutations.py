"""Faults of gangs and Reservations: a part of a gang that is placed, and capacity that is held and given to others."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from services.scheduler.cache.reservation_holds import ReservationHolds
from services.scheduler.cycle import plan_events
from services.scheduler.framework.gang_grouping_interface import Membership
from services.scheduler.plugins.coscheduling.gang_placement_units import GangGrouping
from services.scheduler.quota import take_back_placements_without_quota
from services.scheduler.state.scheduler_state_fields import SchedulerStateFields


def members_are_placed_one_by_one() -> AbstractContextManager[Any]:
    return patch.object(GangGrouping, "_membership", lambda *_: Membership())


def a_refused_charge_takes_one_member_alone() -> AbstractContextManager[Any]:
    """The quota has room for some members of a gang: these are bound."""
    without_refused = take_back_placements_without_quota.without_refused

    def without(plan: Any, refused: Any, charged_at: int) -> Any:
        alone = tuple(each._replace(unit=0) if hasattr(each, "unit") else each for each in plan.decisions)
        return without_refused(plan._replace(decisions=alone), refused, charged_at)

    def groups(plan: Any, needs_charge: Any) -> Any:
        return tuple((each.pod,) for each in plan.placed() if needs_charge(each.pod_class))

    return both(
        patch.object(take_back_placements_without_quota, "without_refused", without),
        patch("services.scheduler.quota.charge_of_cycle.groups_to_charge", groups),
    )


@contextmanager
def both(first: AbstractContextManager[Any], second: AbstractContextManager[Any]) -> Iterator[None]:
    """Returns two patches as one."""
    with first, second:
        yield


def reservations_hold_nothing() -> AbstractContextManager[Any]:
    return patch.object(ReservationHolds, "counted", lambda *_: None)


def refused_gangs_are_tried_at_once() -> AbstractContextManager[Any]:
    """A member without a node does not wait with those that the quota refuses, and the gang is tried for ever."""
    without_refused = take_back_placements_without_quota.without_refused

    def without(plan: Any, refused: Any, charged_at: int) -> Any:
        return without_refused(plan._replace(left_out={}), refused, charged_at)

    return patch.object(take_back_placements_without_quota, "without_refused", without)


def held_members_are_bound() -> AbstractContextManager[Any]:
    """Members of a NonStrict gang are bound before there are enough of them."""
    placed = plan_events._placed
    return patch.object(plan_events, "_placed", lambda plan, each: placed(plan, each._replace(held_for="")))


def statuses_outlast_their_objects() -> AbstractContextManager[Any]:
    """The State depends on whether a status or the deletion of its object is folded first."""
    return patch.object(SchedulerStateFields, "forget_statuses_of_the_gone", lambda _: None)


GANG_AND_RESERVATION_MUTATIONS = (
    members_are_placed_one_by_one,
    a_refused_charge_takes_one_member_alone,
    reservations_hold_nothing,
    refused_gangs_are_tried_at_once,
    held_members_are_bound,
    statuses_outlast_their_objects,
)
