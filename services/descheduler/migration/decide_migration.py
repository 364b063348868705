"""The due steps of all PodMigrationJobs: arbitration, those of each job, and the deletion of old jobs and places.

A function of the State and `now`: whatever a crash lost is decided again. Source: spec/descheduler.md 3.4, 3.10.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from services.descheduler.migration import job_outcomes as names
from services.descheduler.migration.arbitrator import Evaluated, Result, arbitrate
from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.drain import drain_drafts
from services.descheduler.migration.eviction_step import eviction_in_flight
from services.descheduler.migration.job_progress import ARBITRATION, SPEC, STATUS, JobProgress, desired_status, ended
from services.descheduler.migration.job_reservation import reservation_name
from services.descheduler.migration.job_steps import ORDER_FIELDS, Desired, Step, advance, begin, is_late, time_out
from services.descheduler.migration.migration_state import MigrationState
from services.descheduler.migration.pod_migration_job import (
    ABORTED,
    CREATED_BY,
    CREATOR,
    FAILED,
    PASSED_ARBITRATION,
    RUNNING,
    JobStatus,
    ObjectReference,
    PodMigrationJob,
    ReservationOptions,
)
from services.descheduler.migration.rate_limits import RateLimits
from services.descheduler.state.observed_cluster import ObservedCluster
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.migration import MigrationArbitrated, MigrationEnded
from shared.kube.instants import SECOND
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS

KEPT_NS, KEPT_WITHOUT_TTL_NS = 300 * SECOND, 1800 * SECOND
"""A job is deleted this long after its time-out; one without a time-out this long after its creation."""

INVALID = "InvalidJob"


class Inputs(Protocol):
    """The State of the descheduler, as far as migration reads it."""

    migration: MigrationState
    cluster: ObservedCluster

    def desired(self, resource: str, name: str, fields: str = "") -> dict[str, Any] | None:
        """Returns the newest desired value of a field group; see `OwnDesiredStates.desired`."""


def migration_drafts(inputs: Inputs, args: MigrationArgs, now_ns: int) -> list[Draft]:
    """Returns the events that are due, for all jobs."""
    state, facts = inputs.migration, effective_facts(inputs)
    jobs = facts.jobs
    drafts = [*_ends(inputs, jobs), *_unreadable(inputs)]
    ours = [job for job in jobs.values() if job.annotations.get(CREATED_BY, CREATOR) == CREATOR]
    outdated = {job.uid: job for job in ours if _is_outdated(state, job, now_ns)}
    # A job that is deleted now begins nothing: an eviction would be left without it.
    active = [job for job in ours if job.is_active and not job.spec.paused and job.uid not in outdated]
    if active:
        limits = RateLimits(state, facts, args, now_ns)
        waiting = []
        for job in active:
            if job.uid in state.passed:
                drafts += _step(inputs, facts, args, limits, job, now_ns)
            elif is_late(job, now_ns):
                progress = JobProgress(job, now_ns)
                time_out(progress)
                drafts += progress.drafts()
            else:
                waiting.append(job)
        if waiting:
            for evaluated in arbitrate(facts, args, waiting, state.passed):
                drafts += _arbitrated(evaluated, now_ns)
    drafts += _drained(inputs, facts, args, now_ns)
    drafts += (
        Draft(ObjectDesired(resource=MIGRATION_JOBS, name=job.name, body=None, uid=job.uid))
        for job in outdated.values()
    )
    drafts += _released(state, jobs)
    return [_with_drain(state, draft) for draft in drafts]


def _with_drain(state: MigrationState, draft: Draft) -> Draft:
    """Returns the end of a job of a drain with what the drain keeps of it, longer than the job is in the log."""
    event = draft.event
    if not isinstance(event, MigrationEnded) or (job := state.drain_jobs.get(event.job)) is None:
        return draft
    return draft._replace(event=replace(event, drain=job.node, pod_uid=job.pod_uid))


def effective_facts(inputs: Inputs) -> ClusterFacts:
    """Returns the facts with the jobs as this system has decided them, those left out whose deletion was."""
    state = inputs.migration
    there = sorted(state.facts.jobs.items())
    return state.facts.with_jobs({name: effective(inputs, job) for name, job in there if job.uid not in state.deleted})


def effective(inputs: Inputs, job: PodMigrationJob) -> PodMigrationJob:
    """Returns a job as this system has decided it: a status that others write does not count, but an abort does."""
    if (patch := inputs.desired(MIGRATION_JOBS, job.name, STATUS)) is not None:
        job = replace(job, status=msgspec.convert(patch["status"], JobStatus))
    if (patch := inputs.desired(MIGRATION_JOBS, job.name, SPEC)) is not None:
        job = replace(job, spec=_with_own_fields(job, patch["spec"]))
    if job.uid in inputs.migration.aborted:
        job = replace(job, status=replace(job.status, phase=ABORTED))
    return job


def _with_own_fields(job: PodMigrationJob, own: dict[str, Any]) -> Any:
    spec = replace(job.spec, pod_ref=replace(job.spec.pod_ref, uid=own["podRef"]["uid"]))
    if (options := own.get("reservationOptions")) is not None:
        reference = msgspec.convert(options["reservationRef"], ObjectReference)
        options = replace(spec.reservation_options or ReservationOptions(), reservation_ref=reference)
        spec = replace(spec, reservation_options=options)
    return spec


def _step(
    inputs: Inputs, facts: ClusterFacts, args: MigrationArgs, limits: RateLimits, job: PodMigrationJob, now_ns: int
) -> list[Draft]:
    progress = JobProgress(job, now_ns)
    if job.status.phase != RUNNING:
        begin(facts, progress)
    else:
        named = job.reservation.name if job.reservation is not None else reservation_name(job)
        made = inputs.migration.made.get(named) == job.uid
        desired = Desired(
            inputs.desired(RESERVATIONS, named) if made else None, inputs.desired(RESERVATIONS, named, ORDER_FIELDS)
        )
        advance(Step(inputs.migration, facts, args, limits, desired, now_ns), progress)
    return progress.drafts()


def _arbitrated(evaluated: Evaluated, now_ns: int) -> list[Draft]:
    job, result, _ = evaluated
    if result is Result.WAITING:
        return []
    key = job.spec.pod_ref.key
    if result is Result.FAILED:
        progress = JobProgress(job, now_ns)
        progress.fail(names.FORBIDDEN, f"{names.forbidden_message(key)}: {evaluated.reason}")
        return progress.drafts()
    patch = {"metadata": {"annotations": {PASSED_ARBITRATION: "true"}}}
    return [
        Draft(MigrationArbitrated(job=job.name, job_uid=job.uid, pod=key)),
        Draft(FieldsDesired(resource=MIGRATION_JOBS, name=job.name, fields=ARBITRATION, patch=patch, uid=job.uid)),
    ]


def _ends(inputs: Inputs, jobs: dict[str, PodMigrationJob]) -> Iterator[Draft]:
    """Yields the ends of jobs whose objects are gone, and of those that a user aborted."""
    state = inputs.migration
    exist = {job.uid for job in state.facts.jobs.values()}
    for uid, name in sorted({**state.passed, **state.deleted}.items()):
        if uid not in exist and name not in state.facts.unreadable:
            yield Draft(MigrationEnded(job=name, job_uid=uid, phase=""))
    there = {job.uid: job for job in jobs.values()}
    for uid in state.aborted:
        job = there.get(uid)
        if job is None:
            continue
        patch = inputs.desired(MIGRATION_JOBS, job.name, STATUS)
        if patch is not None and patch["status"].get("phase") != ABORTED:
            yield Draft(desired_status(job, job.status))
        if uid in state.passed:
            yield ended(job, ABORTED, message="a user aborted the job")


def _drained(inputs: Inputs, facts: ClusterFacts, args: MigrationArgs, now_ns: int) -> Iterator[Draft]:
    """Yields the ends of jobs of drains that never came to be, and the next step of each drain."""
    state = inputs.migration
    for name in sorted(state.drain_jobs_in_creation().values()):
        if (rejected := state.rejected.get(name)) is not None:
            yield Draft(MigrationEnded(job=name, job_uid="", phase=FAILED, message=rejected[1]))
        elif inputs.desired(MIGRATION_JOBS, name) is None:
            yield Draft(MigrationEnded(job=name, job_uid="", phase=""))
    if state.drains:
        cordoned = {name: bool(node.spec.unschedulable) for name, node in inputs.cluster.nodes.items()}
        limits = RateLimits(state, facts, args, now_ns)
        yield from drain_drafts(state, facts, args, limits, cordoned)


def _unreadable(inputs: Inputs) -> Iterator[Draft]:
    for name, (uid, fault) in sorted(inputs.migration.facts.unreadable.items()):
        if inputs.desired(MIGRATION_JOBS, name, STATUS) is None:
            status = {"phase": FAILED, "reason": INVALID, "message": fault}
            yield Draft(
                FieldsDesired(
                    resource=MIGRATION_JOBS,
                    name=name,
                    fields=STATUS,
                    patch={"status": status},
                    subresource="status",
                    uid=uid,
                )
            )


def _is_outdated(state: MigrationState, job: PodMigrationJob, now_ns: int) -> bool:
    """Reports whether a job is so old that it is deleted now. Its phase does not count."""
    kept_ns = job.ttl_ns + KEPT_NS if job.ttl_ns else KEPT_WITHOUT_TTL_NS
    is_old = now_ns - job.created_ns >= kept_ns
    return is_old and job.uid not in state.deleted and not eviction_in_flight(state, job)


def _released(state: MigrationState, jobs: dict[str, PodMigrationJob]) -> Iterator[Draft]:
    """Yields the deletion of Reservations whose job failed, was aborted, or is gone: none outlives its purpose.

    One for whose pod an eviction may still be carried out is kept until that has its outcome.
    """
    there = {job.uid: job for job in jobs.values()}
    for name, uid in sorted(state.made.items()):
        job = there.get(uid)
        if job is not None and (job.status.phase not in (FAILED, ABORTED) or eviction_in_flight(state, job)):
            continue
        if job is None and any(
            state.is_in_flight(request) for request in state.requests.values() if request.job_uid == uid
        ):
            continue
        found = state.facts.reservations.get(name)
        yield Draft(ObjectDesired(resource=RESERVATIONS, name=name, body=None, uid=found.metadata.uid if found else ""))
