"""Devices that Reservations hold: what is left of them beside their owners, and what a pod may use of it.

Source: spec/scheduler-workloads.md 3.8; upstream pkg/scheduler/plugins/deviceshare/reservation.go.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.device_share import SPEC
from services.scheduler.plugins.device_share.device_usage import (
    Allocation,
    ByType,
    DeviceUsage,
    Lifted,
    add,
    is_zero,
    less,
)
from services.scheduler.plugins.device_share.filter_score_reserve_on_one_node import DeviceAdmission
from services.scheduler.plugins.helper.rejections import Rejection

Amounts = dict[str, dict[int, dict[str, int]]]


class HeldDevices(NamedTuple):
    """The devices of one Reservation.

    Attributes:
        allocatable: what its reserve pod holds.
        allocated: what its owners use on the same devices.
        remained: what is left, of devices with anything left; an owner with more than is held leaves less than 0.
        is_restricted: its owners use no other devices.
    """

    name: str
    allocatable: ByType
    allocated: ByType
    remained: ByType
    is_restricted: bool

    @property
    def required(self) -> ByType:
        """The only devices that an owner may use; empty where any will do."""
        if not self.is_restricted:
            return {}
        if self.remained and all(self.allocated.values()):
            return self.remained
        if self.remained:
            # As upstream has it: a type that is used up denies only beside owners with other devices of another type.
            return {**{type_: {} for type_ in self.allocatable}, **self.remained}
        # As upstream has it: nothing is left, and places in its list stand for minors.
        return {type_: {place: {} for place in range(len(minors))} for type_, minors in self.allocatable.items()}


def held_devices(name: str, held: Allocation, owners: Iterable[Allocation], *, is_restricted: bool) -> HeldDevices:
    """Returns the devices of a Reservation."""
    allocatable = DeviceUsage((held,)).used
    by_owners = DeviceUsage(owners).used
    allocated: Amounts = {}
    remained: Amounts = {}
    for type_, minors in allocatable.items():
        if type_ in by_owners:
            allocated[type_] = {}
        for minor, amounts in minors.items():
            left = dict(amounts)
            if used := by_owners.get(type_, {}).get(minor):
                allocated[type_][minor] = used
                add(left, used.items(), -1)
            if not is_zero(left):
                remained.setdefault(type_, {})[minor] = left
    return HeldDevices(name, allocatable, allocated, remained, is_restricted)


class MatchedReservations(NamedTuple):
    """The Reservations on a node, as one pod sees them.

    Attributes:
        matched: those that it may use, in order.
        unmatched_used: what owners use of the others: it counts there and as use.
        is_required: it has to use one.
    """

    matched: Sequence[HeldDevices]
    unmatched_used: ByType
    is_required: bool = False

    def base(self) -> Amounts:
        """Returns the amounts that count twice: by owners, and by the reserve pods."""
        return summed((self.unmatched_used, *(each.allocated for each in self.matched)))

    def scored(self, held: HeldDevices) -> Lifted:
        """Returns the amounts that count as free in the score of one of them."""
        lifted = self.lifted(held)
        return lifted._replace(required=held.remained) if held.is_restricted and held.remained else lifted

    def lifted(self, held: HeldDevices) -> Lifted:
        """Returns the amounts that are free for an owner of one of them."""
        freed = summed((self.base(), held.remained))
        preferred = {type_: frozenset(minors) for type_, minors in held.allocatable.items()}
        return Lifted(freed, held.required, preferred)

    def all_lifted(self) -> Lifted:
        """Returns the amounts that are free on the node with all of them lifted."""
        return Lifted(summed((self.unmatched_used, *(each.allocatable for each in self.matched))))


def unmatched_used(unmatched: Iterable[HeldDevices]) -> Amounts:
    """Returns what counts twice of Reservations that a pod may not use."""
    return summed(
        {
            type_: {
                minor: less(amounts, each.remained.get(type_, {}).get(minor, {})) for minor, amounts in minors.items()
            }
            for type_, minors in each.allocatable.items()
        }
        for each in unmatched
    )


def choose_within(
    admission: DeviceAdmission, held: HeldDevices, reservations: MatchedReservations, *, final: bool = False
) -> Allocation | Rejection:
    """Chooses devices for an owner of a Reservation; reasons say that they are about it."""
    found = admission.choose(None, reservations.lifted(held), final=final)
    if not isinstance(found, Rejection):
        return found
    return Rejection(tuple(Reason("DevicesInReservation", _worded(reason)) for reason in found.reasons))


def choose_on_node(
    admission: DeviceAdmission, reservations: MatchedReservations, *, final: bool = False
) -> Allocation | Rejection:
    """Chooses devices with the first of the Reservations that allows it, else of the node's own."""
    reasons: list[Reason] = []
    for held in reservations.matched:
        found = choose_within(admission, held, reservations, final=final)
        if not isinstance(found, Rejection):
            return found
        reasons += found.reasons
    if reservations.is_required:
        return Rejection(tuple(reasons))
    return admission.choose(None, reservations.all_lifted(), final=final)


def summed(parts: Iterable[ByType]) -> Amounts:
    """Adds amounts by type and minor."""
    total: Amounts = {}
    for part in parts:
        for type_, minors in part.items():
            for minor, amounts in minors.items():
                add(total.setdefault(type_, {}).setdefault(minor, {}), amounts.items())
    return total


def _worded(reason: Reason) -> str:
    return SPEC.reasons[reason.code].english.format(detail=reason.detail)
