"""The life cycle of Reservations: Pending, Available, Succeeded or Failed, deleted.

A function of the State and `now`. What it decides is recorded as desired status (`FieldsDesired`), as PlacementReleased
where held capacity ends, and as a deletion. It is level-based: whatever a crash lost is decided again.

    Pending    -> Available   a cycle has placed it (PlacementReserved)
    Available  -> Succeeded   `allocateOnce`, and its owners have changed
    Available  -> Failed      it has expired, or its node is gone
    Succeeded, Failed -> deleted, a day later or when the node is gone

A Reservation that no cycle has placed never expires, as in upstream.

Source: spec/scheduler-workloads.md 1.3; upstream pkg/scheduler/plugins/reservation/controller.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from services.scheduler.cache.cluster_cache import ClusterCache
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of
from services.scheduler.reservations.status import (
    Json,
    available,
    expired,
    own_status,
    succeeded,
    unschedulable,
    with_owners,
)
from services.scheduler.state.pod_attempts_and_refusals import FOR_VOLUMES
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from services.scheduler.state.reserve_pods import status_digest
from services.scheduler.state.watched_api_resources import RESERVATIONS
from shared.domain.reservation import (
    FAILED,
    Reservation,
    UnreadableReservation,
    expires_ns,
    problem_of,
    read_reservation,
    with_resized,
)
from shared.domain.scheduler_gates import RESIZE_POD
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.scheduling import PlacementReleased
from shared.kube.instants import SECOND, BadTime, instant_ns
from shared.kube.meta import Metadata

FIELDS = "reservation"
"""The field group of the status."""

_UNREADABLE = Reservation(metadata=Metadata())

KEPT_NS = 24 * 3600 * SECOND
"""A Reservation that has ended is deleted after this time. Source: ReservationArgs.gcDurationSeconds."""


def life_cycle_drafts(cache: ClusterCache, now_ns: int) -> tuple[Draft, ...]:
    """Returns the status writes, releases and deletions that are due; reads every Reservation."""
    drafts: list[Draft] = []
    for name, body in sorted(cache.view.objects.get(RESERVATIONS, {}).items()):
        drafts += _of_one(cache, name, body, now_ns)
    return tuple(drafts)


def _of_one(cache: ClusterCache, name: str, body: Json, now_ns: int) -> Iterator[Draft]:
    try:
        reservation = read_reservation(body)
    except UnreadableReservation as error:
        uid = str((body.get("metadata") or {}).get("uid", ""))
        refused = unschedulable(_UNREADABLE, str(error), now_ns)
        yield from _written(cache, name, uid, refused, own_status(_UNREADABLE))
        return
    uid = reservation.metadata.uid
    if reservation.is_ended:
        if _is_garbage(cache, reservation, now_ns):
            yield Draft(ObjectDesired(resource=RESERVATIONS, name=name, body=None, uid=uid))
        return
    status, released = _desired(cache, reservation, now_ns)
    if status is None:
        return
    writes = tuple(_written(cache, name, uid, status, own_status(reservation)))
    if writes and released:
        yield Draft(
            PlacementReleased(
                holder_uid=uid, holder=name, kind="Reservation", node=reservation.status.node_name, reason=released
            )
        )
    yield from writes


def _written(cache: ClusterCache, name: str, uid: str, status: Json, there: Json) -> Iterator[Draft]:
    last, digest = cache.view.reservation_statuses.get(name), status_digest(status)
    if digest == status_digest(there) or (last is not None and (last.uid, last.digest) == (uid, digest)):
        return
    yield Draft(
        FieldsDesired(
            resource=RESERVATIONS, name=name, fields=FIELDS, patch={"status": status}, subresource="status", uid=uid
        )
    )


def _desired(cache: ClusterCache, reservation: Reservation, now_ns: int) -> tuple[Json | None, str]:
    """Returns the status that a reservation should have, and why its capacity is released; empty where it is not."""
    record = cache.view.pods.get(reservation.metadata.uid)
    if not reservation.status.node_name:
        problem = problem_of(reservation)
        if problem:
            return unschedulable(reservation, problem, now_ns), ""
        if record is None:
            return None, ""
        if record.is_placed():
            if record.hold is not None and record.hold.waits_for == FOR_VOLUMES:
                return None, ""  # it is available once they are bound
            return available(_resized(cache, reservation, record), record.placed_node, now_ns), ""
        message = "" if record.decisions is None else record.decisions.condition_message
        return (unschedulable(reservation, message, now_ns) if message else None), ""
    if _is_expired(reservation, now_ns):
        return expired(reservation, now_ns), "it has expired"
    if reservation.status.node_name not in cache.view.nodes:
        return expired(reservation, now_ns), f"its node {reservation.status.node_name} is gone"
    owners = _owners(cache, reservation, record)
    status = with_owners(reservation, owners)
    if status == own_status(reservation) or not reservation.allocates_once:
        return status, ""
    return succeeded(reservation, status, now_ns), "it is used, and holds capacity for one pod"


def _resized(cache: ClusterCache, reservation: Reservation, record: PodRecord) -> Reservation:
    """Returns the reservation with the sums of the amounts of its devices, under the gate ResizePod.

    Source: spec/scheduler-workloads.md 3.9; upstream pkg/scheduler/plugins/deviceshare/plugin.go, ResizePod.
    """
    decisions = record.decisions
    devices = () if decisions is None else allocation_of(decisions.placed_allocation)
    if not devices or RESIZE_POD not in cache.cluster_objects.gates:
        return reservation
    total: Counter[str] = Counter()
    for device in devices:
        total.update(dict(device.amounts))
    return with_resized(reservation, {name: str(amount) for name, amount in total.items()})


def _owners(
    cache: ClusterCache, reservation: Reservation, record: PodRecord | None
) -> Mapping[str, tuple[str, Assignment]]:
    """Returns the pods that run on its node and use it: uid -> name and assignment."""
    found: dict[str, tuple[str, Assignment]] = {}
    if record is None:
        return found
    holds = cache.cluster_objects.reservations
    for uid, assignment in sorted(holds.owners.get(reservation.metadata.uid, {}).items()):
        pod = cache.view.pods.get(uid)
        if pod is not None and pod.node and pod.node == reservation.status.node_name:
            found[uid] = pod.name, assignment
    return found


def _is_expired(reservation: Reservation, now_ns: int) -> bool:
    if problem_of(reservation):
        return False  # its times may be unreadable
    end_ns = expires_ns(reservation)
    return end_ns is not None and now_ns > end_ns


def _is_garbage(cache: ClusterCache, reservation: Reservation, now_ns: int) -> bool:
    status = reservation.status
    ready = next((each for each in status.conditions if each.type == "Ready"), None)
    if status.phase == FAILED:
        if ready is None or ready.reason != "Expired":
            return False  # upstream never deletes one that failed for another reason
        since = ready.last_transition_time
    else:
        since = None if ready is None else ready.last_probe_time
    if status.node_name not in cache.view.nodes:
        return True
    try:
        return since is not None and now_ns - instant_ns(since) > KEPT_NS
    except BadTime:
        return False
