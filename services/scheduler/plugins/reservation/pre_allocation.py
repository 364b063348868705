"""Pre-allocation: a Reservation takes over pods that run, and is placed where they leave it enough.

The candidates of a Reservation do not count while its reserve pod is evaluated (`CycleTransaction.focus`); this module
takes back what that alone would allow: all candidates that the Reservation does not take over count beside it.

Source: spec/scheduler-workloads.md 1.11; upstream pkg/scheduler/plugins/reservation/{pre_allocation,plugin}.go.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.reservation_holds import ReservedCapacity, used_reservation
from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.reservation.args import ReservationArgs
from services.scheduler.plugins.reservation.filter_and_nominate_reservations import lacks_node
from services.scheduler.plugins.reservation.reservations_a_pod_may_use import is_pre_allocatable
from services.scheduler.state.packed_controllers import unpacked
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment
from shared.domain.reservation import PRE_ALLOCATABLE_PRIORITY, Owner
from shared.domain.reservation_owners import Identity, matches_one


class Candidate(NamedTuple):
    """A running pod that a Reservation may take over."""

    uid: str
    assignment: Assignment

    @property
    def request(self) -> Mapping[str, int]:
        """Its requests."""
        return self.assignment.pod_class.request


class TakeOver(NamedTuple):
    """The result of a node for a Reservation with pre-allocation.

    Attributes:
        reasons: why it is rejected; empty where it passes.
        taken: the pods that it takes over there; none where the node has enough without.
    """

    reasons: tuple[Reason, ...]
    taken: tuple[Candidate, ...] = ()


def candidates_of(
    snapshot: CycleSnapshot, args: ReservationArgs, capacity: ReservedCapacity, taken: Collection[str]
) -> dict[int, list[Candidate]]:
    """Returns row -> the pods that a Reservation may take over there, in the order in which they are tried.

    Args:
        taken: uids of pods that others of this cycle take over.
    """
    is_cluster_mode = capacity.reservation.is_cluster_mode
    owners = tuple(owner for owner in capacity.reservation.spec.owners if owner.label_selector is not None)
    rows: dict[int, list[Candidate]] = {}
    classes = [
        (pod_class, counts)
        for pod_class, counts in snapshot.pod_index.classes()
        if not pod_class.holds_capacity
        and (
            pod_class.labels.get(args.pre_allocation.label) == "true"
            if is_cluster_mode
            else _may_own(owners, pod_class)
        )
    ]
    by_row: dict[int, set[PodClass]] = {}
    for pod_class, counts in classes:
        for row in counts:
            by_row.setdefault(row, set()).add(pod_class)
    for row, there in sorted(by_row.items()):
        if row >= snapshot.size:
            continue
        found = [
            Candidate(uid, assignment)
            for uid, assignment in snapshot.assigned.get(row, {}).items()
            if assignment.pod_class in there
            and uid not in taken
            and not assignment.terminating
            and not _is_owner(snapshot, capacity, assignment)
            and (is_cluster_mode or _owns(owners, uid, assignment))
            and is_pre_allocatable(assignment.pod_class, capacity, snapshot.table, row, snapshot.cluster_objects.gates)
        ]
        if found:
            rows[row] = _in_order(found, capacity, is_cluster_mode=is_cluster_mode)
    return rows


def _may_own(owners: Sequence[Owner], pod_class: PodClass) -> bool:
    """Returns True where the labels of a class match an owner, whatever else it names."""
    return any(
        matches_one((Owner(label_selector=owner.label_selector),), pod_class.namespace, pod_class.labels, None)
        for owner in owners
    )


def _owns(owners: Sequence[Owner], uid: str, assignment: Assignment) -> bool:
    pod_class, name = assignment.pod_class, assignment.name.rpartition("/")[2]
    identity = Identity(name, uid, unpacked(assignment.controllers))
    return matches_one(owners, pod_class.namespace, pod_class.labels, identity)


def _is_owner(snapshot: CycleSnapshot, capacity: ReservedCapacity, assignment: Assignment) -> bool:
    """Returns True for a pod that uses another Reservation."""
    used = used_reservation(assignment.allocation)
    return bool(used) and used != capacity.uid and used in snapshot.holds.table.capacities


def _in_order(found: list[Candidate], capacity: ReservedCapacity, *, is_cluster_mode: bool) -> list[Candidate]:
    if is_cluster_mode:
        return sorted(found, key=lambda each: (-_priority(each.assignment.pod_class), each.uid))
    return sorted(found, key=lambda each: (-score_of_candidate(capacity, each), each.uid))


def _priority(pod_class: PodClass) -> int:
    annotations = pod_class.pod.metadata.annotations or {}
    try:
        return int(annotations.get(PRE_ALLOCATABLE_PRIORITY, "0"))
    except ValueError:
        return 0


def score_of_candidate(capacity: ReservedCapacity, candidate: Candidate) -> int:
    """Returns the share of the Reservation that a pod would use, 0..100, the mean over its resources."""
    amounts = {name: size for name, size in capacity.amounts.items() if size}
    shares = (
        100 * used // size if (used := candidate.request.get(name, 0)) <= size else 0 for name, size in amounts.items()
    )
    return sum(shares) // len(amounts) if amounts else 0


def take_over(
    snapshot: CycleSnapshot,
    args: ReservationArgs,
    pod_class: PodClass,
    row: int,
    capacity: ReservedCapacity,
    candidates: Sequence[Candidate],
) -> TakeOver:
    """Chooses the pods of a node that a Reservation takes over; the candidates do not count there at present.

    Without several, the first candidate is taken that leaves the node enough: the one that fills the Reservation most,
    or that comes first in cluster mode. With several, candidates are added until the node has enough; one that does not
    fit into the Reservation beside those is passed over.

    Args:
        pod_class: of the reserve pod.
        candidates: all of the node, in order.
    """
    reservation = capacity.reservation

    def lacking(taken: Sequence[Candidate]) -> tuple[Reason, ...]:
        left = [each.request for each in candidates if each not in taken]
        return lacks_node(snapshot, args, pod_class, row, left, -len(candidates))

    alone = lacking(())
    if not alone and args.pre_allocation.prefers_none and not reservation.requires_pre_allocation:
        return TakeOver(())
    reasons: dict[Reason, None] = {}
    taken: tuple[Candidate, ...] = ()
    for each in candidates:
        if not any(name in each.request for name in capacity.restricted):
            continue
        tried = (*taken, each) if reservation.takes_several else (each,)
        inside = _lacks_inside(capacity, tried)
        by_node = () if inside else lacking(tried)
        if not inside and not by_node:
            return TakeOver((), tried)
        reasons.update(dict.fromkeys((*inside, *by_node)))
        if reservation.takes_several and not inside:
            taken = tried
    if reservation.requires_pre_allocation:
        return TakeOver(tuple(sorted(reasons)) or (Reason("NoPodToPreAllocate"),))
    return TakeOver(alone)


def _lacks_inside(capacity: ReservedCapacity, taken: Sequence[Candidate]) -> tuple[Reason, ...]:
    """Returns the resources of the Reservation that pods exceed."""
    return tuple(
        Reason("InsufficientInReservation", name)
        for name in capacity.restricted
        if sum(each.request.get(name, 0) for each in taken) > capacity.amounts[name] - capacity.inner.get(name, 0)
    )
