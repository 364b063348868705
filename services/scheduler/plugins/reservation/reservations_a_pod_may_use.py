"""Which Reservations a pod may use: owners, reservation affinity, taints and exact matches.

Source: spec/scheduler-workloads.md 1.5; upstream pkg/scheduler/plugins/reservation/transformer.go.
"""

from collections.abc import Mapping
from typing import Any

from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.reservation_holds import ReservedCapacity
from services.scheduler.plugins.reservation.reservation_affinity import ReservationAffinity, Wish, wish_of
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.reservation_owners import matches_one
from shared.domain.scheduler_gates import OMIT_NODE_LABELS
from shared.domain.tolerations import HARD, tolerates
from shared.kube.node import Taint
from shared.kube.selectors import Requirement

_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def decision(
    pod_class: PodClass,
    wish: Wish,
    capacity: ReservedCapacity,
    table: NodeTable,
    row: int,
    gates: frozenset[str] = frozenset(),
) -> str:
    """Returns `matched`, `ignored`, or the first reason why pods of the class may not use a Reservation.

    Args:
        row: of its node.
        gates: the feature gates that are on.
    """
    affinity, metadata = wish.affinity, capacity.reservation.metadata
    if wish.is_ignored:
        return "ignored"
    if not is_owner(pod_class, capacity):
        return "owner"
    is_closed = capacity.reservation.spec.unschedulable or metadata.deletion_timestamp is not None
    if is_closed and not (affinity is not None and affinity.name):
        tolerations = affinity.tolerations if affinity is not None else ()
        if not any(tolerates(each, _UNSCHEDULABLE) for each in tolerations):
            return "unschedulable"
    return _decision_by_annotations(pod_class, wish, capacity, table, row, gates)


def is_pre_allocatable(
    pod_class: PodClass, capacity: ReservedCapacity, table: NodeTable, row: int, gates: frozenset[str]
) -> bool:
    """Returns True where the annotations of running pods permit a Reservation to take them over."""
    wish = wish_of(pod_class)
    if wish.problem or wish.is_ignored:
        return False
    return _decision_by_annotations(pod_class, wish, capacity, table, row, gates) == "matched"


def _decision_by_annotations(
    pod_class: PodClass,
    wish: Wish,
    capacity: ReservedCapacity,
    table: NodeTable,
    row: int,
    gates: frozenset[str],
) -> str:
    affinity = wish.affinity
    if affinity is not None and affinity.name:
        if affinity.name != capacity.name:
            return "name"
        return "matched" if _is_exact(pod_class, wish, capacity) else "notExact"
    if affinity is not None:
        if untolerated_taint(wish, capacity) is not None:
            return "taints"
        if not _is_selected(affinity, capacity, table, -1 if OMIT_NODE_LABELS in gates else row):
            return "affinity"
    return "matched" if _is_exact(pod_class, wish, capacity) else "notExact"


def is_owner(pod_class: PodClass, capacity: ReservedCapacity) -> bool:
    """Reports whether an owner names pods of the class; none does where the owners cannot be read."""
    owners = capacity.reservation.spec.owners
    return capacity.is_usable and matches_one(owners, pod_class.namespace, pod_class.labels, pod_class.identity)


def untolerated_taint(wish: Wish, capacity: ReservedCapacity) -> Taint | None:
    """Returns the first taint of a Reservation that a pod with an affinity does not tolerate."""
    tolerations = wish.affinity.tolerations if wish.affinity is not None else ()
    for taint in capacity.reservation.spec.taints:
        if taint.effect in HARD and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def _is_exact(pod_class: PodClass, wish: Wish, capacity: ReservedCapacity) -> bool:
    for name in wish.exact:
        requested, held = pod_class.request.get(name), capacity.amounts.get(name)
        if requested is None and held is None:
            return True  # upstream compares no further name then
        if requested != held:
            return False
    return True


def _is_selected(affinity: ReservationAffinity, capacity: ReservedCapacity, table: NodeTable, row: int) -> bool:
    labels = capacity.reservation.metadata.labels or {}
    for key, value in (affinity.reservation_selector or {}).items():
        if not _meets(Requirement(key=key, operator="In", values=(value,)), labels, table, row):
            return False
    if affinity.required is None:
        return True
    return any(
        bool(term.match_expressions or term.match_fields)
        and all(_meets(requirement, labels, table, row) for requirement in term.match_expressions)
        and all(_is_named(requirement, capacity.name) for requirement in term.match_fields)
        for term in affinity.required.reservation_selector_terms
    )


def _meets(requirement: Requirement, labels: Mapping[str, Any], table: NodeTable, row: int) -> bool:
    """Labels of the Reservation come first, those of its node behind them; the latter do not count without a row."""
    value = labels.get(requirement.key)
    if value is None and row < 0:
        return requirement.operator in ("NotIn", "DoesNotExist")
    if value is None:
        return bool(table.labels.matches(requirement, table.size)[row])
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return True
        case "Gt" | "Lt":
            try:
                actual, bound = int(value), int(requirement.values[0])
            except (ValueError, IndexError):
                return False
            return actual > bound if requirement.operator == "Gt" else actual < bound
    return False


def _is_named(requirement: Requirement, name: str) -> bool:
    if requirement.key != "metadata.name":
        return False
    match requirement.operator:
        case "In":
            return name in requirement.values
        case "NotIn":
            return name not in requirement.values
    return False
