"""Capacity that Reservations hold on their nodes, and the part of it that pods use.

A reserve pod counts on its node like any pod; a pod that uses the Reservation counts there too. So that no capacity
counts twice, the reserve pod counts with what is left of it: its amounts minus the requests of its owners, of each
resource at least 0. Upstream subtracts the requests whatever their size; an owner that requests more than the
Reservation has, the rest from its node, would free capacity there that is not free.

Source: spec/scheduler-workloads.md 1.4, 1.7.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec

from services.scheduler.state.pod_equivalence_class import PodClass, remaining_class
from services.scheduler.state.pod_scheduling_record import Assignment
from shared.domain.device_allocation import remaining_devices
from shared.domain.operating_mode_pod import is_operating
from shared.domain.pod_requests import DEFAULT_REQUESTS
from shared.domain.reservation import (
    ORDER,
    RESTRICTED,
    Reservation,
    inner_reserved,
    problem_of_use,
    requests_text,
    restricted_resources,
)
from shared.domain.resource_status import remaining_status
from shared.kube.json_text import read_json
from shared.kube.quantity import amount, nanos
from shared.kube.system_annotations import DEVICE_ALLOCATED, RESERVATION_ALLOCATED, RESOURCE_STATUS

_ORDERS = 1 << 63
_NONZERO = {name: amount(name, size) for name, size in DEFAULT_REQUESTS.items()}


class Rows(Protocol):
    """The part of `NodeTable` that is read here. Commands that read a Reservation import no arrays: they start in a third
    of the time.
    """

    version: int
    rows: dict[str, int]


class ReservedCapacity(NamedTuple):
    """The parts of a Reservation that placements depend on, from its object.

    Attributes:
        amounts: resource -> amount that it holds, in the scheduler's units.
        restricted: the resources of which owners use its amounts, in order: all of them, or those that an annotation
            lists.
        inner: amounts that no owner may use.
        order: the smaller, the earlier it is used; 0 without one.
        is_usable: pods may use it: its owners and annotations can be read, and a pod in operating mode has no current
            owner.
    """

    reservation: Reservation
    amounts: Mapping[str, int]
    restricted: tuple[str, ...]
    inner: Mapping[str, int]
    order: int
    is_usable: bool = True

    @property
    def uid(self) -> str:
        """The uid of the object."""
        return self.reservation.metadata.uid

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.reservation.metadata.name


def reserved_capacity(reservation: Reservation) -> ReservedCapacity:
    """Reads a reservation whose amounts can be read."""
    allocatable = reservation.status.allocatable or requests_text(reservation)
    amounts = {name: amount(name, nanos(text)) for name, text in sorted(allocatable.items())}
    is_used_up = is_operating(reservation.metadata.labels) and bool(reservation.status.current_owners)
    is_usable = not problem_of_use(reservation) and not is_used_up
    listed = _restricted(reservation)
    chosen = tuple(name for name in amounts if name in listed) if reservation.spec.allocate_policy == RESTRICTED else ()
    reserved = inner_reserved(reservation) if is_usable else {}
    inner = {name: amount(name, nanos(text)) for name, text in reserved.items()}
    return ReservedCapacity(reservation, amounts, chosen or tuple(amounts), inner, _order(reservation), is_usable)


def _restricted(reservation: Reservation) -> tuple[str, ...]:
    try:
        return restricted_resources(reservation)
    except msgspec.MsgspecError:
        return ()


def _order(reservation: Reservation) -> int:
    """Returns the order; 0 for a text that is no int64, as in upstream."""
    try:
        order = int((reservation.metadata.labels or {}).get(ORDER, ""))
    except ValueError:
        return 0
    return order if -_ORDERS <= order < _ORDERS else 0


class _Allocated(msgspec.Struct, frozen=True):
    uid: str = ""


@lru_cache(maxsize=65_536)
def _uid_in(text: str) -> str:
    try:
        found: str = read_json(text, _Allocated).uid
    except msgspec.MsgspecError:
        return ""
    return found


def used_reservation(allocation: Mapping[str, str] | None) -> str:
    """Returns the uid of the Reservation that a pod with this allocation uses; empty for none."""
    text = (allocation or {}).get(RESERVATION_ALLOCATED)
    return _uid_in(text) if text else ""


class Use(NamedTuple):
    """The use of a Reservation by its owners.

    Attributes:
        amounts: resource -> sum of their requests, of restricted resources.
        owners: the number of them.
        statuses: the annotations with their CPUs and NUMA amounts, of those that have any, sorted.
        devices: the annotations with their devices, likewise.
    """

    amounts: Mapping[str, int]
    owners: int
    statuses: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


UNUSED = Use({}, 0)


def changed_use(
    use: Use, capacity: ReservedCapacity, pod_class: PodClass, allocation: Mapping[str, str], sign: int
) -> Use:
    """Returns the use with one more owner (+1), or one less (-1)."""
    amounts = dict(use.amounts)
    for name in capacity.restricted:
        size = amounts.get(name, 0) + sign * pod_class.request.get(name, 0)
        if size:
            amounts[name] = size
        else:
            amounts.pop(name, None)
    statuses = _changed_texts(use.statuses, allocation.get(RESOURCE_STATUS), sign)
    devices = _changed_texts(use.devices, allocation.get(DEVICE_ALLOCATED), sign)
    return Use(amounts, use.owners + sign, statuses, devices)


def _changed_texts(texts: tuple[str, ...], text: str | None, sign: int) -> tuple[str, ...]:
    if not text:
        return texts
    left = list(texts)
    left.append(text) if sign > 0 else left.remove(text)
    return tuple(sorted(left))


def left_of(pod_class: PodClass, use: Use) -> PodClass:
    """Returns the class by which a reserve pod counts on its node while pods use it."""
    if not use.owners:
        return pod_class
    request = {name: max(0, size - use.amounts.get(name, 0)) for name, size in pod_class.request.items()}
    nonzero = {
        name: max(0, size - (use.amounts.get(name) or _NONZERO.get(name, 0)))
        for name, size in pod_class.nonzero_assigned.items()
    }
    return remaining_class(pod_class, request, nonzero)


def left_beside(pod_class: PodClass, owners: Sequence[PodClass]) -> PodClass:
    """Returns the class by which a reserve pod counts beside owners of these classes."""
    amounts = {name: sum(owner.request.get(name, 0) for owner in owners) for name in pod_class.request}
    return left_of(pod_class, Use(amounts, len(owners)))


def left_assignment(whole: Assignment, use: Use) -> Assignment:
    """Returns where and how a reserve pod counts while pods use it: amounts, CPUs and NUMA amounts are what is left."""
    left = whole._replace(pod_class=left_of(whole.pod_class, use))
    allocation = dict(whole.allocation or {})
    for name, used, remaining in (
        (RESOURCE_STATUS, use.statuses, remaining_status),
        (DEVICE_ALLOCATED, use.devices, remaining_devices),
    ):
        if used and (text := allocation.pop(name, "")) and (kept := remaining(text, used)):
            allocation[name] = kept
    return left if allocation == (whole.allocation or {}) else left._replace(allocation=allocation or None)


class ReservationHolds:
    """The Reservations and their owners, by uid.

    Attributes:
        version: grows with every change of a Reservation, and of its place.
        capacities: uid -> the Reservation, of those that can be read.
        assigned: uid -> where its reserve pod counts, with the amounts of the whole Reservation.
        owners: uid -> uid of a pod that uses it -> where that pod counts.
    """

    def __init__(self) -> None:
        self.version = 0
        self.capacities: dict[str, ReservedCapacity] = {}
        self.assigned: dict[str, Assignment] = {}
        self.owners: dict[str, dict[str, Assignment]] = {}
        self._uids: dict[str, str] = {}
        self._uses: dict[str, Use] = {}  # those that were computed since they changed
        self._left: dict[str, Assignment] = {}  # where and how reserve pods count, of those that have a place
        self._available: dict[int, list[ReservedCapacity]] = {}
        self._available_at = (-1, -1)  # versions, own and of the nodes, of `_available`

    def __bool__(self) -> bool:
        """Returns False where there is no Reservation."""
        return bool(self.capacities)

    def set(self, name: str, reservation: Reservation | None) -> None:
        """Sets a Reservation as observed; None when it is deleted or cannot be read."""
        self.version += 1
        uid = self._uids.pop(name, None)
        if uid is not None:
            self.capacities.pop(uid, None)
            self._uses.pop(uid, None)
        if reservation is not None:
            self._uids[name] = reservation.metadata.uid
            self._uses.pop(reservation.metadata.uid, None)
            self.capacities[reservation.metadata.uid] = reserved_capacity(reservation)

    def available(self, table: Rows) -> Mapping[int, Sequence[ReservedCapacity]]:
        """Returns row -> the Reservations there that are available and may be used, by name."""
        versions = self.version, table.version
        if self._available_at != versions:
            self._available_at, self._available = versions, {}
            for capacity in sorted(self.capacities.values(), key=lambda each: each.name):
                at = self.assigned.get(capacity.uid)
                if at is None or not capacity.is_usable or not capacity.reservation.is_available:
                    continue
                row = table.rows.get(at.node)
                if row is not None:
                    self._available.setdefault(row, []).append(capacity)
        return self._available

    def use_of(self, uid: str) -> Use:
        """Returns the use of a Reservation by the pods on its node."""
        use = self._uses.get(uid)
        if use is None:
            use = self._uses[uid] = self._use(uid)
        return use

    def _use(self, uid: str) -> Use:
        capacity, at = self.capacities.get(uid), self.assigned.get(uid)
        if capacity is None or at is None:
            return UNUSED
        there = [owner for owner in self.owners.get(uid, {}).values() if owner.node == at.node]
        amounts = {name: sum(owner.pod_class.request.get(name, 0) for owner in there) for name in capacity.restricted}
        statuses, devices = (
            tuple(sorted(text for owner in there if (text := (owner.allocation or {}).get(name))))
            for name in (RESOURCE_STATUS, DEVICE_ALLOCATED)
        )
        return Use({name: size for name, size in amounts.items() if size}, len(there), statuses, devices)

    def counted(self, uid: str, whole: Assignment | None) -> Assignment | None:
        """Returns where and by which class a reserve pod counts, and notes where it is."""
        before = self.assigned.get(uid)
        self._uses.pop(uid, None)
        if whole is None:
            self.version += before is not None
            self.assigned.pop(uid, None)
            self._left.pop(uid, None)
            return None
        self.version += before is None or before.node != whole.node
        self.assigned[uid] = whole
        left = self._left[uid] = left_assignment(whole, self.use_of(uid))
        return left

    def left(self, uid: str) -> Assignment:
        """Returns where and how a reserve pod that has a place counts, as it was counted last."""
        return self._left[uid]

    def note_owner(self, uid: str, before: Assignment | None, after: Assignment | None) -> tuple[str, ...]:
        """Notes the Reservation that a pod uses; returns the uids of those whose use has changed."""
        was = used_reservation(before.allocation) if before is not None else ""
        now = used_reservation(after.allocation) if after is not None else ""
        if not was and not now:
            return ()
        for each in (was, now):
            self._uses.pop(each, None)
        if was:
            self.owners[was].pop(uid, None)
            if not self.owners[was]:
                del self.owners[was]
        if now and after is not None:
            self.owners.setdefault(now, {})[uid] = after
        return tuple(dict.fromkeys(each for each in (was, now) if each))


class Drawn(NamedTuple):
    """The lifted Reservations of a node for one pod: CPUs and NUMA amounts come from one of them alone.

    Attributes:
        uid: of the one that the pod uses; empty for none.
        others: uids of those that it may not use besides.
    """

    uid: str = ""
    others: tuple[str, ...] = ()


NOTHING_DRAWN = Drawn()


class CycleHolds:
    """The Reservations within a cycle: their use, and those that are lifted for the class that is evaluated.

    Attributes:
        table: as the cycle began.
        lifted: uid -> row of the Reservations whose reserve pod does not count at present.
        candidates: uid -> a running pod that a Reservation may take over, which is lifted like a reserve pod.
        focused: the Reservations that were lifted last, if nothing has been lifted or put back since.
        drawn: the Reservations of a node as a pod that is about to be placed there sees them.
        changes: uids of the Reservations whose use has changed, in order, also by an undo.
    """

    def __init__(self, table: ReservationHolds) -> None:
        self.table = table
        self.lifted: dict[str, int] = {}
        self.candidates: dict[str, Assignment] = {}
        self.focused: Mapping[str, int] | None = None
        self.drawn = NOTHING_DRAWN
        self.changes: list[str] = []
        self._uses: dict[str, Use] = {}

    def use_of(self, uid: str) -> Use:
        """Returns the present use of a Reservation."""
        use = self._uses.get(uid)
        return self.table.use_of(uid) if use is None else use

    def is_open(self, capacity: ReservedCapacity) -> bool:
        """Returns True where one more pod may use it."""
        return not (capacity.reservation.allocates_once and self.use_of(capacity.uid).owners)

    def left_of(self, uid: str) -> Mapping[str, int]:
        """Returns the amounts with which its reserve pod counts where it is not lifted."""
        whole, use = self.table.assigned[uid].pod_class.request, self.use_of(uid)
        return {name: max(0, size - use.amounts.get(name, 0)) for name, size in whole.items()} if use.owners else whole

    def assignment(self, uid: str) -> Assignment:
        """Returns where and how its reserve pod counts, or a candidate."""
        if uid in self.candidates:
            return self.candidates[uid]
        use = self._uses.get(uid)
        return self.table.left(uid) if use is None else left_assignment(self.table.assigned[uid], use)

    def lift(self, uid: str, row: int, sign: int) -> None:
        """Notes that a reserve pod does not count from now on (-1), or counts again (+1)."""
        self.focused = None
        if sign < 0:
            self.lifted[uid] = row
        else:
            del self.lifted[uid]

    def change(self, uid: str, pod_class: PodClass, allocation: Mapping[str, str], sign: int) -> Use | None:
        """Counts one more owner (+1), or one less (-1); returns what `restore` takes."""
        before = self._uses.get(uid)
        self._uses[uid] = changed_use(self.use_of(uid), self.table.capacities[uid], pod_class, allocation, sign)
        self.changes.append(uid)
        return before

    def restore(self, uid: str, before: Use | None) -> None:
        """Undoes the last `change` that is not undone yet."""
        self.changes.append(uid)
        if before is None:
            del self._uses[uid]
        else:
            self._uses[uid] = before
