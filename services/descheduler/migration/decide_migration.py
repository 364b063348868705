"""Decides the next steps of PodMigrationJobs: which may begin, how each goes on, and which old jobs and Reservations
are deleted.

A function of the State and `now`: a step that a crash kept from being recorded is decided again.

Source: spec/descheduler.md 3.4, 3.10.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from services.descheduler.migration import job_outcomes as names
from services.descheduler.migration.arbitrator import Evaluated, Gangs, Result, arbitrate
from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.drain import drain_drafts
from services.descheduler.migration.eviction_step import eviction_in_flight
from services.descheduler.migration.job_progress import ARBITRATION, SPEC, STATUS, JobProgress, desired_status, ended
from services.descheduler.migration.job_reservation import reservation_name
from services.descheduler.migration.job_steps import ORDER_FIELDS, advance, begin, time_out
from services.descheduler.migration.kubernetes_events import outdated_events
from services.descheduler.migration.migration_state import JobUnit, MigrationState
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
from services.descheduler.migration.step_inputs import Desired, Step, is_late, is_old
from services.descheduler.state.observed_cluster import ObservedCluster
from shared.domain.gang import gang_of
from shared.domain.move_destinations import MOST_MOVES, DestinationsResponse, Move
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.migration import MigrationArbitrated, MigrationEnded
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS

INVALID = "InvalidJob"


class Inputs(Protocol):
    """The State of the descheduler, as far as migration reads it."""

    migration: MigrationState
    cluster: ObservedCluster

    def desired(self, resource: str, name: str, fields: str = "") -> dict[str, Any] | None:
        """Returns the newest desired value of a field group; see `OwnDesiredStates.desired`."""

    def pods_of_jobs_in_creation(self) -> Container[str]:
        """Returns the uids of pods whose jobs this system has decided, and that are not there yet."""

    def jobs_together(self) -> Mapping[str, Mapping[str, str]]:
        """Returns case -> job -> uid of its pod, of the cases whose pods leave all together."""


def unit_moves(inputs: Inputs, args: MigrationArgs, now_ns: int) -> tuple[Move, ...]:
    """Returns the question to the scheduler: the pods of all units of gangs that pass once each has a destination."""
    state, facts = inputs.migration, effective_facts(inputs)
    due = _due(state, facts.jobs, now_ns)
    waiting = [job for job in due.active if job.uid not in state.passed and not is_late(job, now_ns)]
    if not any(gang_of(pod.metadata) for job in waiting for pod in facts.pods_of_job(job)):
        return ()
    gangs = Gangs(inputs.pods_of_jobs_in_creation(), cases=inputs.jobs_together())
    results = arbitrate(facts, args, waiting, state.passed, gangs)
    pods = [facts.pod(each.job.spec.pod_ref.key) for each in results if each.needs_node]
    return tuple(Move(pod.metadata.uid) for pod in pods[:MOST_MOVES] if pod is not None)


class _Due(NamedTuple):
    """The jobs of this system that may go on, and those that are deleted now."""

    active: list[PodMigrationJob]
    outdated: list[PodMigrationJob]


def _due(state: MigrationState, jobs: dict[str, PodMigrationJob], now_ns: int) -> _Due:
    ours = [job for job in jobs.values() if job.annotations.get(CREATED_BY, CREATOR) == CREATOR]
    outdated = {job.uid: job for job in ours if _is_outdated(state, job, now_ns)}
    # A job that is deleted now begins nothing: an eviction would be left without it.
    active = [job for job in ours if job.is_active and not job.spec.paused and job.uid not in outdated]
    return _Due(active, list(outdated.values()))


def migration_drafts(
    inputs: Inputs, args: MigrationArgs, now_ns: int, found: DestinationsResponse | None = None
) -> list[Draft]:
    """Returns the events that are due, for all jobs.

    Args:
        found: the scheduler's answer to `unit_moves`; without one no unit of a gang begins.
    """
    state, facts = inputs.migration, effective_facts(inputs)
    jobs = facts.jobs
    drafts = [*_ends(inputs, jobs), *_unreadable(inputs)]
    active, outdated = _due(state, jobs, now_ns)
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
            gangs = Gangs(inputs.pods_of_jobs_in_creation(), found, inputs.jobs_together())
            for evaluated in arbitrate(facts, args, waiting, state.passed, gangs):
                drafts += _arbitrated(evaluated, now_ns)
    drafts += _drained(inputs, facts, args, now_ns)
    drafts += (Draft(ObjectDesired(resource=MIGRATION_JOBS, name=job.name, body=None, uid=job.uid)) for job in outdated)
    drafts += _released(state, jobs)
    drafts += outdated_events(state.events, (job.uid for job in state.facts.jobs.values()))
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
    job, result, unit = evaluated.job, evaluated.result, evaluated.unit
    if result is Result.WAITING:
        return []
    key = job.spec.pod_ref.key
    if result is Result.FAILED:
        progress = JobProgress(job, now_ns)
        progress.fail(names.FORBIDDEN, f"{names.forbidden_message(key)}: {evaluated.reason}")
        return progress.drafts()
    patch = {"metadata": {"annotations": {PASSED_ARBITRATION: "true"}}}
    return [
        Draft(_passed(job, key, unit)),
        Draft(FieldsDesired(resource=MIGRATION_JOBS, name=job.name, fields=ARBITRATION, patch=patch, uid=job.uid)),
    ]


def _passed(job: PodMigrationJob, key: str, unit: JobUnit | None) -> MigrationArbitrated:
    if unit is None:
        return MigrationArbitrated(job=job.name, job_uid=job.uid, pod=key)
    return MigrationArbitrated(
        job=job.name,
        job_uid=job.uid,
        pod=key,
        gang=unit.gang,
        together=unit.jobs,
        destination=unit.destination,
        case=unit.case,
    )


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
    return is_old(job, now_ns) and job.uid not in state.deleted and not eviction_in_flight(state, job)


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
