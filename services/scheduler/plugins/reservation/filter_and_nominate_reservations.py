"""Evaluates a pod on a node with its Reservations, and chooses the one that it uses.

Source: spec/scheduler-workloads.md 1.8, 1.9; upstream pkg/scheduler/plugins/reservation/{plugin,nominator,scoring}.go.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.reservation_holds import ReservedCapacity
from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.reservation.args import ReservationArgs
from services.scheduler.plugins.reservation.reservation_affinity import Wish
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.reservation import RESTRICTED
from shared.domain.scheduler_gates import SKIP_FITS_NODE

NATIVE = ("cpu", "memory", "ephemeral-storage")
"""Resources that are checked whether the pod requests them or not."""


class Offer(NamedTuple):
    """The result of a node for a class of pods.

    Attributes:
        reasons: why it is rejected; empty where it passes.
        nominated: the Reservation that the pod uses there; None for none.
        score: of the nominated one, 0..100.
    """

    reasons: tuple[Reason, ...]
    nominated: ReservedCapacity | None = None
    score: int = 0


def offer_of(
    snapshot: CycleSnapshot,
    args: ReservationArgs,
    pod_class: PodClass,
    row: int,
    matched: Sequence[ReservedCapacity],
    wish: Wish,
) -> Offer:
    """Evaluates a node whose matched Reservations are lifted.

    Args:
        matched: those that one more pod may use, in the order of their names.
    """
    by_node: dict[Reason, None] = {}
    by_reservation: dict[Reason, None] = {}
    passing: list[ReservedCapacity] = []
    for capacity in matched:
        lacking = lacks_with(snapshot, args, pod_class, row, matched, capacity, wish)
        if lacking is None:
            continue
        by_node.update(dict.fromkeys(lacking.by_node))
        by_reservation.update(dict.fromkeys(lacking.by_reservation))
        if not lacking.by_node and not lacking.by_reservation:
            passing.append(capacity)
    if passing:
        nominated = _nominated(snapshot, pod_class, passing)
        return Offer((), nominated, score_of(snapshot, pod_class, nominated))
    if wish.affinity is not None:
        reasons = (*sorted(by_node), *by_reservation)
        return Offer(reasons or (Reason("NoReservationMeetsRequest"),))
    if by_node:
        return Offer(tuple(sorted(by_node)))
    held = list(_left(snapshot, matched).values())
    return Offer(lacks_node(snapshot, args, pod_class, row, held, len(matched)))


class Lacking(NamedTuple):
    """Why a pod does not fit with one Reservation: both are empty where it does."""

    by_node: tuple[Reason, ...]
    by_reservation: tuple[Reason, ...]


def lacks_with(
    snapshot: CycleSnapshot,
    args: ReservationArgs,
    pod_class: PodClass,
    row: int,
    matched: Sequence[ReservedCapacity],
    capacity: ReservedCapacity,
    wish: Wish,
) -> Lacking | None:
    """Evaluates a node for pods that use one of its lifted Reservations; None where it has nothing that they request,
    and need not be used.
    """
    if not is_considered(pod_class, capacity, is_required=wish.affinity is not None):
        return None
    left = _left(snapshot, matched)
    of_this = left.pop(capacity.uid)
    held = [*left.values(), {name: min(size, of_this.get(name, 0)) for name, size in capacity.inner.items()}]
    is_checked = len(matched) > 1 or SKIP_FITS_NODE not in snapshot.cluster_objects.gates
    node = lacks_node(snapshot, args, pod_class, row, held, len(matched)) if is_checked else ()
    inside = _lacks_reservation(snapshot, pod_class, capacity) if is_restricted(capacity) else ()
    return Lacking(node, inside)


def is_considered(pod_class: PodClass, capacity: ReservedCapacity, *, is_required: bool) -> bool:
    """Returns False where a Reservation has nothing that pods of the class request, and none is required."""
    return is_required or any(name in pod_class.request for name in capacity.restricted)


def _left(snapshot: CycleSnapshot, matched: Sequence[ReservedCapacity]) -> dict[str, Mapping[str, int]]:
    return {each.uid: snapshot.holds.left_of(each.uid) for each in matched}


def lacks_node(
    snapshot: CycleSnapshot,
    args: ReservationArgs,
    pod_class: PodClass,
    row: int,
    held: Sequence[Mapping[str, int]],
    lifted: int,
) -> tuple[Reason, ...]:
    """Returns the resources that the node lacks when these amounts of those that do not count at present are held.

    Args:
        lifted: the number of pods that the node need not have room for.
    """
    request, lacking = pod_class.request, list[Reason]()
    # As upstream has it, which subtracts reserve pods that do not count already; NodeResourcesFit counts exactly.
    if int(snapshot.pods[row]) - lifted + 1 > int(snapshot.allowed_pods[row]):
        lacking.append(Reason("InsufficientByNode", "pods"))
    if not any(request.values()):
        return tuple(lacking)
    for name in dict.fromkeys((*NATIVE, *request)):
        size, column = request.get(name, 0), snapshot.column(name)
        if name not in NATIVE and (not size or args.ignores(name)):
            continue
        used = sum(amounts.get(name, 0) for amounts in held)
        free = (int(snapshot.allocatable[row, column]) - int(snapshot.requested[row, column])) if column >= 0 else 0
        if size > free - used:
            lacking.append(Reason("InsufficientByNode", name))
    return tuple(lacking)


def is_restricted(capacity: ReservedCapacity) -> bool:
    """Returns True where the resources that a Reservation restricts come from it alone."""
    return capacity.reservation.spec.allocate_policy == RESTRICTED


def _lacks_reservation(snapshot: CycleSnapshot, pod_class: PodClass, capacity: ReservedCapacity) -> tuple[Reason, ...]:
    use = snapshot.holds.use_of(capacity.uid)
    lacking: list[Reason] = []
    if "pods" in capacity.amounts and use.owners + 1 > capacity.amounts["pods"]:
        lacking.append(Reason("TooManyPodsInReservation"))
    for name in capacity.restricted:
        size = pod_class.request.get(name, 0)
        remaining = capacity.amounts[name] - capacity.inner.get(name, 0) - use.amounts.get(name, 0)
        if size and size > remaining:
            lacking.append(Reason("InsufficientInReservation", name))
    return tuple(lacking)


def _nominated(snapshot: CycleSnapshot, pod_class: PodClass, passing: Sequence[ReservedCapacity]) -> ReservedCapacity:
    ordered = [each for each in passing if each.order]
    if ordered:
        return min(ordered, key=lambda each: each.order)
    return max(passing, key=lambda each: score_of(snapshot, pod_class, each)) if len(passing) > 1 else passing[0]


def score_of(snapshot: CycleSnapshot, pod_class: PodClass, capacity: ReservedCapacity) -> int:
    """Returns the score of a Reservation: the share of it that is used with the pod, the mean over its resources."""
    use, amounts = snapshot.holds.use_of(capacity.uid), {n: size for n, size in capacity.amounts.items() if size}
    total = 0
    for name, size in amounts.items():
        used = pod_class.request.get(name, 0) + use.amounts.get(name, 0)
        total += 100 * used // size if used <= size else 0
    return total // len(amounts) if amounts else 0
