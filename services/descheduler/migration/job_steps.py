"""The steps of one job: reserve a place, evict the pod, wait until its successor is bound to the place and ready.

A function of the State and `now`; each step rests on the log, so a restart at any point goes on where it was.
Every way ends: in success, with a reason, or by the job's time-out.

Source: spec/descheduler.md 3.10; upstream pkg/descheduler/controllers/migration/controller.go.
"""

from typing import Any

from services.descheduler.migration import job_outcomes as names
from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.eviction_step import evict, eviction_in_flight
from services.descheduler.migration.gang_unit import broken_by, waits_for
from services.descheduler.migration.job_progress import SPEC, JobProgress
from services.descheduler.migration.job_reservation import reservation_body, reservation_name
from services.descheduler.migration.pod_migration_job import (
    DESTINATION,
    EVICT_DIRECTLY,
    ObjectReference,
    PodMigrationJob,
)
from services.descheduler.migration.step_inputs import Step, is_late, must_wait
from services.descheduler.state.observed_pods import is_available
from shared.domain.reservation import FAILED, ORDER, PENDING, SUCCEEDED, Reservation
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.instants import SECOND
from shared.kube.pod import Pod
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS

ORDER_FIELDS = "order"
"""Field group of a Reservation that existed before: the label of its order."""

RETRY_NS = 30 * SECOND
"""A Reservation that the API server rejected is tried again after this time."""


def time_out(progress: JobProgress) -> None:
    """Ends a job whose time is over."""
    progress.fail(names.TIMEOUT, "Abort job caused by timeout")


def advance(step: Step, progress: JobProgress) -> None:
    """Takes the steps of a running job that are due."""
    job = progress.job
    if is_late(job, step.now_ns):
        if not eviction_in_flight(step.state, job):  # an eviction is never left without its place
            time_out(progress)
        return
    unit = step.state.units.get(job.uid)
    if unit is not None and not step.state.has_evicted(job.uid) and (fault := broken_by(step, unit, job.uid)):
        progress.fail(names.GANG_STAYS, fault)
        return
    pod = step.facts.pod(job.spec.pod_ref.key, job.spec.pod_ref.uid)
    if pod is not None and must_wait(step, job, pod):
        return
    if job.mode(step.args.default_mode) == EVICT_DIRECTLY:
        if evict(step.state, step.args, step.limits, progress, pod, None, step.now_ns):
            progress.succeed(f'Pod "{job.spec.pod_ref.key}" has been evicted', evicted_only=True)
        return
    reservation = _reservation(step, progress, pod)
    if reservation is not None:
        _use(step, progress, pod, reservation)


def begin(facts: ClusterFacts, progress: JobProgress) -> None:
    """Starts a job that has passed arbitration, and fixes the uid of its pod; it fails without one."""
    job = progress.job
    named = job.spec.pod_ref
    if not named.name or not named.namespace:
        progress.fail(names.INVALID_POD_REF, "spec.podRef lacks the name or the namespace of the pod; set both")
        return
    pod = facts.pod(named.key, named.uid)
    if pod is None:
        progress.fail(names.MISSING_POD, f'Pod "{named.key}" is gone')
        return
    progress.begin()
    progress.add(Draft(_desired_spec(job, pod.metadata.uid, job.reservation)))


def _desired_spec(job: PodMigrationJob, pod_uid: str, reservation: ObjectReference | None) -> FieldsDesired:
    spec: dict[str, Any] = {"podRef": {"uid": pod_uid}}
    if reservation is not None:
        spec["reservationOptions"] = {"reservationRef": {"kind": "Reservation", "name": reservation.name}}
    return FieldsDesired(resource=MIGRATION_JOBS, name=job.name, fields=SPEC, patch={"spec": spec}, uid=job.uid)


def _reservation(step: Step, progress: JobProgress, pod: Pod | None) -> Reservation | None:
    """Returns the Reservation of the job once it exists; creates it before."""
    job = progress.job
    named = job.reservation.name if job.reservation is not None else reservation_name(job)
    found = step.facts.reservations.get(named)
    if found is None:
        if step.desired.reservation is not None or job.reservation is not None:
            _absent(step, progress, pod, named)
            return None
        if pod is None:
            progress.fail(names.MISSING_POD, f'Pod "{job.spec.pod_ref.key}" is gone')
            return None
        body = reservation_body(job, pod, step.now_ns, _destination(step, job))
        if not body["spec"]["owners"]:
            progress.fail(names.FAILED_CREATE_RESERVATION, names.without_successor(job.spec.pod_ref.key))
            return None
        progress.add(Draft(ObjectDesired(resource=RESERVATIONS, name=named, body=body)))
        reference = ObjectReference(kind="Reservation", name=named)
        progress.add(Draft(_desired_spec(job, pod.metadata.uid, reference)))
        return None
    if job.reservation is None:  # one of that name existed before, or a crash came between two appends
        reference = ObjectReference(kind="Reservation", name=named)
        progress.add(Draft(_desired_spec(job, job.spec.pod_ref.uid, reference)))
    labels = found.metadata.labels or {}
    if step.desired.reservation is None and ORDER not in labels and step.desired.reservation_order is None:
        patch = {"metadata": {"labels": {ORDER: str(step.now_ns // 10**6)}}}
        progress.add(Draft(FieldsDesired(resource=RESERVATIONS, name=named, fields=ORDER_FIELDS, patch=patch)))
    progress.condition(names.RESERVATION_CREATED, true=True)
    return found


def _destination(step: Step, job: PodMigrationJob) -> str:
    """Returns the only node where the place of a job may be: of its unit, else of its case; empty for any."""
    unit = step.state.units.get(job.uid)
    return (unit.destination if unit is not None else "") or job.annotations.get(DESTINATION, "")


def _absent(step: Step, progress: JobProgress, pod: Pod | None, named: str) -> None:
    """Decides about a Reservation that is not there: it is being created, was rejected, or is gone."""
    rejected = step.state.rejected.get(named)
    if step.desired.reservation is None or progress.status.is_true(names.RESERVATION_CREATED):
        # Evictions that were requested while it was there are still carried out.
        if not eviction_in_flight(step.state, progress.job):
            progress.fail(names.MISSING_RESERVATION, f"Reservation {named} is gone")
    elif rejected is not None:
        at_ns, reason = rejected
        progress.condition(
            names.RESERVATION_CREATED, true=False, reason=names.FAILED_CREATE_RESERVATION, message=reason
        )
        if pod is not None and step.now_ns - at_ns >= RETRY_NS:
            body = reservation_body(progress.job, pod, step.now_ns, _destination(step, progress.job))
            if body != step.desired.reservation:
                progress.add(Draft(ObjectDesired(resource=RESERVATIONS, name=named, body=body)))


def _use(step: Step, progress: JobProgress, pod: Pod | None, reservation: Reservation) -> None:
    """Takes the steps that need the Reservation."""
    if not _is_placed(progress, pod, reservation):
        return
    job = progress.job
    if any(owner.object is not None for owner in reservation.spec.owners):
        _wait_for_pending_pod(progress, pod, reservation)
        return
    owner = next(iter(reservation.status.current_owners), None)
    if not _is_requested(step, job) and not progress.status.is_true(names.EVICTION):
        if reservation.status.phase == SUCCEEDED and owner is not None:
            progress.fail(names.FORBIDDEN, f"Reservation {reservation.metadata.name} is used by Pod {owner.name}")
        elif reservation.is_ended:
            progress.fail(names.RESERVATION_EXPIRED, f"Reservation {reservation.metadata.name} has expired")
        if progress.is_over or not reservation.is_available:
            return
        unit = step.state.units.get(job.uid)
        if unit is not None and pod is not None and (fault := waits_for(step, unit, job.uid)):
            progress.condition(names.EVICTION, true=False, reason=names.WAIT_FOR_GANG, message=fault)
            return
    if not evict(step.state, step.args, step.limits, progress, pod, reservation, step.now_ns):
        return
    if owner is None:
        if reservation.is_ended:
            progress.fail(names.RESERVATION_EXPIRED, f"Reservation {reservation.metadata.name} ended unused")
            return
        progress.condition(names.POD_BOUND_RESERVATION, true=False, reason=names.WAIT_FOR_POD_BIND)
        return
    progress.condition(names.RESERVATION_BOUND, true=True)
    progress.bound(ObjectReference(kind="Pod", namespace=owner.namespace, name=owner.name, uid=owner.uid))
    successor = step.facts.pod(f"{owner.namespace}/{owner.name}", owner.uid)
    if successor is not None and not is_available(successor):
        progress.condition(names.BOUND_POD_READY, true=False, reason=names.WAIT_FOR_POD_READY)
        return
    progress.condition(names.BOUND_POD_READY, true=True)
    message = f'Bind Pod "{owner.namespace}/{owner.name}" in Reservation "{reservation.metadata.name}"'
    progress.condition(names.POD_BOUND_RESERVATION, true=True, message=message)
    progress.succeed(message)


def _is_requested(step: Step, job: PodMigrationJob) -> bool:
    """Reports whether the job's eviction is being carried out, or was: its place may be used from then on."""
    found = step.state.eviction(job.spec.pod_ref.uid)
    return found is not None and found.request.job_uid == job.uid and (found.outcome is None or found.outcome.done)


def _is_placed(progress: JobProgress, pod: Pod | None, reservation: Reservation) -> bool:
    """Reports whether the Reservation holds a place; records why not."""
    if progress.status.is_true(names.RESERVATION_SCHEDULED):
        return True
    status, name = reservation.status, reservation.metadata.name
    scheduled = next((each for each in status.conditions if each.type == "Scheduled"), None)
    if scheduled is not None and scheduled.status != "True" and scheduled.reason == "Unschedulable":
        progress.condition(
            names.RESERVATION_SCHEDULED, true=False, reason=names.UNSCHEDULABLE, message=scheduled.message
        )
    if status.phase in ("", PENDING):
        return False
    ready = next((each for each in status.conditions if each.type == "Ready"), None)
    if status.phase == FAILED and ready is not None and ready.reason == "Expired":
        progress.fail(names.RESERVATION_EXPIRED, f"Reservation {name} has expired")
    elif not status.node_name or scheduled is None or scheduled.status != "True":
        progress.fail(names.UNSCHEDULABLE, f"Reservation {name} was not scheduled")
    elif pod is not None and status.node_name == pod.spec.node_name:
        progress.fail(names.FORBIDDEN, f"Reservation {name} is on node {status.node_name}, where the pod is already")
    else:
        progress.place(status.node_name)
        progress.condition(names.RESERVATION_SCHEDULED, true=True)
        return True
    return False


def _wait_for_pending_pod(progress: JobProgress, pod: Pod | None, reservation: Reservation) -> None:
    """Waits until a pod without a node takes the place that is held for it alone."""
    job = progress.job
    if pod is None:
        progress.fail(names.MISSING_POD, f'Pod "{job.spec.pod_ref.key}" is gone')
        return
    scheduled = pod.condition("PodScheduled")
    if pod.spec.node_name or (scheduled is not None and scheduled.status == "True"):
        progress.condition(names.POD_SCHEDULED, true=True)
        progress.succeed(f'Pod "{job.spec.pod_ref.key}" has been scheduled')
        return
    used_by = next(iter(reservation.status.current_owners), None)
    if reservation.status.phase == SUCCEEDED and (used_by is None or used_by.uid != pod.metadata.uid):
        progress.fail(names.FORBIDDEN, f"Reservation {reservation.metadata.name} is used by another pod")
        return
    progress.condition(names.POD_SCHEDULED, true=False, reason=names.UNSCHEDULABLE)
