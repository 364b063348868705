"""The eviction of a job's pod, by the method that the pod, the job or the configuration names.

It is requested once, carried out by the gateway within its budgets and the disruption budgets of the pod, and again
after a pause where it was refused. Source: spec/descheduler.md 3.10 (E), 3.12.
"""

from typing import Any

import msgspec

from services.descheduler.migration import job_outcomes as names
from services.descheduler.migration.controller_args import DELETE, METHODS, SOFT_EVICTION, MigrationArgs
from services.descheduler.migration.job_progress import JobProgress
from services.descheduler.migration.migration_state import SOFT_FIELDS, MigrationState, OpenRequest
from services.descheduler.migration.pod_migration_job import (
    EVICT_POLICY,
    EVICT_REASON,
    EVICT_TRIGGER,
    PodMigrationJob,
)
from services.descheduler.migration.rate_limits import RateLimits
from shared.domain.reservation import Reservation
from shared.events import Draft
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.migration import MigrationEvictionDecided
from shared.kube.instants import SECOND, instant_text
from shared.kube.pod import Pod

SOFT = "scheduling.koordinator.sh/soft-eviction"
"""Annotation that asks another program to remove the pod."""

FIRST_PAUSE_NS, LONGEST_PAUSE_NS = 3 * SECOND, 30 * SECOND
"""Pauses after an eviction that was refused: each twice the one before."""

DEADLINE_NS = 300 * SECOND
"""An eviction of a job without a time-out is not carried out later than this after its request."""


def evict(
    state: MigrationState,
    args: MigrationArgs,
    limits: RateLimits,
    progress: JobProgress,
    pod: Pod | None,
    reservation: Reservation | None,
    now_ns: int,
) -> bool:
    """Has the pod evicted; returns whether it is gone.

    Args:
        pod: with the uid of the job; None when it is gone.
        reservation: it holds the pod's destination; None to evict without one.
    """
    job = progress.job
    if progress.status.is_true(names.EVICTION):
        return True
    found = state.eviction(job.spec.pod_ref.uid)
    own = found is not None and found.request.job_uid == job.uid
    if pod is None:
        if not own:
            progress.fail(names.MISSING_POD, f'Pod "{job.spec.pod_ref.key}" is gone')
            return False
        progress.condition(names.EVICTION, true=True, reason=names.EVICT_COMPLETE)
        return True
    if found is not None and found.outcome is None:
        return False
    if found is not None and found.outcome is not None and found.outcome.done:
        if own:
            progress.condition(names.EVICTION, true=False, reason=names.EVICTING, message=_message(job, pod))
        return False
    if found is not None and found.outcome is not None:
        progress.condition(names.EVICTION, true=False, reason=names.FAILED_EVICT, message=found.outcome.reason)
        if must_pause(found, now_ns):
            return False
    unit = state.units.get(job.uid)
    if (unit is None or not unit.gang) and (reason := limits.breaks_gang(pod)):
        progress.condition(names.EVICTION, true=False, reason=names.FAILED_EVICT, message=reason)
    elif limits.take_eviction(pod, "" if unit is None else unit.name):
        progress.add(*_request(args, job, pod, reservation, now_ns))
    return False


def must_pause(found: OpenRequest, now_ns: int) -> bool:
    """Reports whether an eviction was refused, and it is too early for the next one."""
    if found.outcome is None or found.outcome.done:
        return False
    pause_ns = min(FIRST_PAUSE_NS << min(found.request.tries - 1, 8), LONGEST_PAUSE_NS)
    return now_ns - found.outcome.at_ns < pause_ns


def eviction_in_flight(state: MigrationState, job: PodMigrationJob) -> bool:
    """Reports whether the gateway may still carry out an eviction that the job requested."""
    found = state.eviction(job.spec.pod_ref.uid)
    return found is not None and found.request.job_uid == job.uid and found.outcome is None


NOT_SET = "NotSet"
"""Upstream's reason of a job without one, in the job's status and in the request of a soft eviction."""


def reason_of(job: PodMigrationJob) -> str:
    """Returns why a job moves its pod."""
    return job.annotations.get(EVICT_REASON) or job.annotations.get(EVICT_TRIGGER) or NOT_SET


def method_of(job: PodMigrationJob, pod: Pod, default: str) -> str:
    """Returns the method of the pod's label, else of the job's; an unknown one counts as the default."""
    named = (pod.metadata.labels or {}).get(EVICT_POLICY) or (job.metadata.labels or {}).get(EVICT_POLICY) or default
    return named if named in METHODS else default


def _message(job: PodMigrationJob, pod: Pod) -> str:
    return f'Pod "{pod.metadata.key}" evicted from node "{pod.spec.node_name}" by the reason "{reason_of(job)}"'


def _request(
    args: MigrationArgs, job: PodMigrationJob, pod: Pod, reservation: Reservation | None, now_ns: int
) -> tuple[Draft, Draft]:
    """Returns the decision and the intent with its effect."""
    options, owner = job.spec.delete_options, pod.metadata.controller
    grace_s = args.grace_period_s if options is None else options.grace_period_seconds
    method, reason, key, uid = method_of(job, pod, args.method), reason_of(job), pod.metadata.key, pod.metadata.uid
    if reason == NOT_SET:
        reason = "made by a client, which names no reason"  # jobs of this descheduler have theirs in an annotation
    decided = MigrationEvictionDecided(
        job=job.name,
        job_uid=job.uid,
        pod=key,
        pod_uid=uid,
        node=pod.spec.node_name,
        destination="" if reservation is None else reservation.status.node_name,
        controller="" if owner is None else owner.uid,
        method=method,
        reason=reason,
    )
    if method == SOFT_EVICTION:
        text = _soft(job, grace_s, now_ns)
        patch = {"metadata": {"annotations": {SOFT: text}}}
        intent: Any = FieldsDesired(resource="pods", name=key, fields=SOFT_FIELDS, patch=patch, uid=uid)
    else:
        deadline_ns = job.created_ns + job.ttl_ns if job.ttl_ns else now_ns + DEADLINE_NS
        intent = EvictionRequested(
            pod_uid=uid,
            pod=key,
            reason=f"PodMigrationJob {job.name}: {reason}",
            grace_period_s=grace_s,
            deletes=method == DELETE,
            deadline_ns=deadline_ns,
            reservation="" if reservation is None else reservation.metadata.name,
        )
    return Draft(decided, correlation=uid), Draft(intent, correlation=uid)


def _soft(job: PodMigrationJob, grace_s: int | None, now_ns: int) -> str:
    found: dict[str, Any] = {"timestamp": instant_text(now_ns // SECOND * SECOND)}
    if grace_s is not None:
        found["deleteOptions"] = {"gracePeriodSeconds": grace_s}
    found |= {"initiator": job.annotations.get(EVICT_TRIGGER, ""), "reason": reason_of(job)}
    return msgspec.json.encode(found).decode()
