"""Reserve pods in the State: the pod that stands for a Reservation, made from its object.

A Reservation is in the State twice: as an object, which plugins read, and as a pod under the object's uid, which is
queued, placed and counted on its node like any other. The name of that pod is the Reservation's, without a namespace.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from shared.domain.reservation import (
    RESERVATION_PLACEMENT,
    WAITING,
    Owner,
    Reservation,
    UnreadableReservation,
    problem_of,
    problem_of_amounts,
    read_reservation,
    reserve_pod,
)
from shared.events.cluster import ObjectObserved, PodObserved
from shared.kube.meta import Metadata
from shared.kube.pod import Pod


class LastStatus(NamedTuple):
    """The last desired status of a Reservation or of a PodGroup.

    Attributes:
        uid: of the object; one that is created anew under the same name has a status of its own.
        digest: of the status without times.
    """

    uid: str
    digest: str


_TIMES = ("lastProbeTime", "lastTransitionTime")


def status_digest(status: Mapping[str, Any]) -> str:
    """Returns the digest of a status without its times."""
    conditions = [
        {name: value for name, value in condition.items() if name not in _TIMES}
        for condition in status.get("conditions") or ()
    ]
    plain = {**status, "conditions": conditions, "scheduleStartTime": None}
    return sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:16]


def reserve_pod_of(event: ObjectObserved) -> PodObserved | None:
    """Returns the observation of the reserve pod; None for a Reservation that can neither be placed nor holds capacity.

    One that is available holds its capacity as long as its amounts can be read, whatever becomes of its owners.
    """
    try:
        reservation = read_reservation(event.object)
    except UnreadableReservation:
        return None
    if problem_of_amounts(reservation) if reservation.is_available else problem_of(reservation):
        return None
    if reservation.status.phase == WAITING and reservation.status.node_name:
        return None
    return PodObserved(pod=event.name, pod_uid=event.uid, object=reserve_pod(reservation))


def may_help(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> bool:
    """Reports whether pods may use a Reservation that they could not use before."""
    if not _read(after).is_available:
        return False
    return before is None or not _read(before).is_available or before.get("spec") != after.get("spec")


def identity_owners_of(body: Mapping[str, Any]) -> tuple[Owner, ...]:
    """Returns the owners of a Reservation that has not ended which name pods by more than labels."""
    reservation = _read(body)
    if reservation.is_ended or problem_of(reservation):
        return ()
    return tuple(owner for owner in reservation.spec.owners if owner.object is not None or owner.controller is not None)


def _read(body: Mapping[str, Any]) -> Reservation:
    try:
        return read_reservation(body)
    except UnreadableReservation:
        return Reservation(metadata=Metadata())


def without_marker(pod: Pod) -> Pod:
    """Returns an observed pod without the annotation that only reserve pods have."""
    annotations = pod.metadata.annotations
    if not annotations or RESERVATION_PLACEMENT not in annotations:
        return pod
    kept = {name: value for name, value in annotations.items() if name != RESERVATION_PLACEMENT}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=kept or None))
