"""The status of a Reservation at each step of its life, as JSON of the API.

Source: spec/scheduler-workloads.md 1.3.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.state.pod_scheduling_record import Assignment
from shared.domain.reservation import (
    AVAILABLE,
    FAILED,
    PENDING,
    SUCCEEDED,
    Reservation,
    ReservationCondition,
    requests_text,
)
from shared.kube.instants import SECOND, instant_text
from shared.kube.quantity import NANO
from shared.kube.quantity_text import notation_of, quantity_text

Json = dict[str, Any]


def own_status(reservation: Reservation) -> Json:
    """Returns the status as the object has it."""
    status = reservation.status
    return _status(reservation, status.phase or PENDING, [_plain(each) for each in status.conditions])


def _status(reservation: Reservation, phase: str, conditions: list[Json]) -> Json:
    status = reservation.status
    found: Json = {"phase": phase, "conditions": conditions}
    if status.node_name:
        found["nodeName"] = status.node_name
    if status.allocatable is not None:
        found["allocatable"] = dict(status.allocatable)
    if status.allocated:
        found["allocated"] = dict(status.allocated)
    if status.current_owners or status.allocated:
        found["currentOwners"] = [msgspec.to_builtins(each) for each in status.current_owners]
    return found


def unschedulable(reservation: Reservation, message: str, now_ns: int) -> Json:
    """Returns the status of a reservation that no node admits."""
    before = _condition(reservation, "Scheduled")
    at = _at(now_ns)
    changed = at if before is None or before.status == "True" else before.last_transition_time or at
    condition = {
        "type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": message, "lastProbeTime": at,
        "lastTransitionTime": changed,
    }  # fmt: skip
    others = [_plain(each) for each in reservation.status.conditions if each.type != "Scheduled"]
    return _status(reservation, PENDING, [condition, *others])


def available(reservation: Reservation, node: str, now_ns: int) -> Json:
    """Returns the status of a reservation that has been placed on the node."""
    at = _at(now_ns)
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "lastProbeTime": at, "lastTransitionTime": at}
        for kind, reason in (("Scheduled", "Scheduled"), ("Ready", "Available"))
    ]
    held = requests_text(reservation)
    return {"phase": AVAILABLE, "nodeName": node, "allocatable": held, "conditions": conditions}


def with_owners(reservation: Reservation, owners: Mapping[str, tuple[str, Assignment]]) -> Json:
    """Returns the status with these owners, uid -> name and assignment, and the sum of their requests."""
    status = own_status(reservation)
    for name in ("allocated", "currentOwners"):
        status.pop(name, None)
    listed = []
    for uid, (pod, _) in owners.items():
        namespace, _, name = pod.partition("/")
        listed.append({"namespace": namespace, "name": name, "uid": uid})
    if listed or reservation.status.current_owners or reservation.status.allocated:
        status["currentOwners"] = listed
        status["allocated"] = _allocated(reservation, [assignment for _, assignment in owners.values()])
    return status


def _allocated(reservation: Reservation, owners: list[Assignment]) -> Json:
    found: Json = {}
    for name, text in sorted((reservation.status.allocatable or {}).items()):
        total = sum(owner.pod_class.request.get(name, 0) for owner in owners)
        found[name] = quantity_text(total * (NANO // 1000 if name == "cpu" else NANO), notation_of(text))
    return found


def succeeded(reservation: Reservation, status: Json, now_ns: int) -> Json:
    """Returns the status of a reservation whose one owner has come, or gone."""
    at, ready = _at(now_ns), _condition(reservation, "Ready")
    # Upstream leaves the time of the transition as it was.
    changed = at if ready is None else ready.last_transition_time or at
    condition = {
        "type": "Ready", "status": "False", "reason": "Succeeded", "lastProbeTime": at, "lastTransitionTime": changed,
    }  # fmt: skip
    return {**status, "phase": SUCCEEDED, "conditions": [*_others(reservation), condition]}


def expired(reservation: Reservation, now_ns: int) -> Json:
    """Returns the status of a reservation that has expired, or whose node is gone."""
    at, ready = _at(now_ns), _condition(reservation, "Ready")
    changed = at if ready is None or ready.status == "True" else ready.last_transition_time or at
    condition = {
        "type": "Ready", "status": "False", "reason": "Expired", "lastProbeTime": at, "lastTransitionTime": changed,
    }  # fmt: skip
    return _status(reservation, FAILED, [*_others(reservation), condition])


def _others(reservation: Reservation) -> list[Json]:
    return [_plain(each) for each in reservation.status.conditions if each.type != "Ready"]


def _condition(reservation: Reservation, kind: str) -> ReservationCondition | None:
    return next((each for each in reservation.status.conditions if each.type == kind), None)


def _plain(condition: ReservationCondition) -> Json:
    plain: Json = msgspec.to_builtins(condition)
    return plain


def _at(now_ns: int) -> str:
    return instant_text(now_ns // SECOND * SECOND)
