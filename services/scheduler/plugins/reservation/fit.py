"""Evaluates a pod on a node with its Reservations, and chooses the one that it uses.

Source: spec/scheduler-workloads.md 1.8, 1.9; upstream pkg/scheduler/plugins/reservation/{plugin,nominator,scoring}.go.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.scheduler.cache.cycle_snapshot import CycleSnapshot
from services.scheduler.cache.reservation_holds import ReservedCapacity
from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.reservation.args import ReservationArgs
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.reservation import RESTRICTED

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
    *,
    required: bool,
) -> Offer:
    """Evaluates a node whose matched Reservations are lifted.

    Args:
        matched: those that one more pod may use, in the order of their names.
        required: the pod has to use one of them.
    """
    left = {each.uid: snapshot.holds.assignment(each.uid).pod_class.request for each in matched}
    by_node: dict[Reason, None] = {}
    by_reservation: dict[Reason, None] = {}
    passing: list[ReservedCapacity] = []
    for capacity in matched:
        if not required and not any(pod_class.request.get(name) is not None for name in capacity.restricted):
            continue
        others = [request for uid, request in left.items() if uid != capacity.uid]
        others.append({name: min(size, left[capacity.uid].get(name, 0)) for name, size in capacity.inner.items()})
        node = lacks_node(snapshot, args, pod_class, row, others)
        inside = _lacks_reservation(snapshot, pod_class, capacity) if _is_restricted(capacity) else ()
        by_node.update(dict.fromkeys(node))
        by_reservation.update(dict.fromkeys(inside))
        if not node and not inside:
            passing.append(capacity)
    if passing:
        nominated = _nominated(snapshot, pod_class, passing)
        return Offer((), nominated, score_of(snapshot, pod_class, nominated))
    reasons = (*sorted(by_node), *by_reservation)
    if required:
        return Offer(reasons or (Reason("NoReservationMeetsRequest"),))
    if by_node:
        return Offer(tuple(sorted(by_node)))
    return Offer(lacks_node(snapshot, args, pod_class, row, list(left.values())))


def lacks_node(
    snapshot: CycleSnapshot,
    args: ReservationArgs,
    pod_class: PodClass,
    row: int,
    held: Sequence[Mapping[str, int]],
) -> tuple[Reason, ...]:
    """Returns the resources that the node lacks when these amounts of lifted Reservations are held."""
    request = pod_class.request
    if not any(request.values()):
        return ()
    lacking: list[Reason] = []
    for name in dict.fromkeys((*NATIVE, *request)):
        size, column = request.get(name, 0), snapshot.column(name)
        if name not in NATIVE and (not size or args.ignores(name)):
            continue
        used = sum(amounts.get(name, 0) for amounts in held)
        free = (int(snapshot.allocatable[row, column]) - int(snapshot.requested[row, column])) if column >= 0 else 0
        if size > free - used:
            lacking.append(Reason("InsufficientByNode", name))
    return tuple(lacking)


def _is_restricted(capacity: ReservedCapacity) -> bool:
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
