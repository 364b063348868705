"""The jobs that move as a unit, of a gang or of a case for a waiting unit: their pods are evicted in one append, once a
place is held for each of them.

They passed the arbitrator together, with destinations that the scheduler found in one transaction. Where one of them
ends before its pod was evicted, the others end as well: a unit moves as a whole or not at all.

These are rules of this system; upstream has none of them.
"""

from services.descheduler.migration.eviction_step import must_pause
from services.descheduler.migration.job_reservation import reservation_name
from services.descheduler.migration.migration_state import JobUnit
from services.descheduler.migration.pod_migration_job import RUNNING, PodMigrationJob
from services.descheduler.migration.step_inputs import Step, is_late, is_old, must_wait


def broken_by(step: Step, unit: JobUnit, own: str) -> str:
    """Returns why a unit does not move any more, as a phrase; empty while all its jobs go on, or have evicted their pods.

    Args:
        own: uid of the job that asks.
    """
    for name, uid in sorted(unit.jobs.items()):
        if uid == own or step.state.has_evicted(uid):
            continue
        job = _job(step, name, uid)
        if job is None:
            return f"{moves_as_unit(unit.name)}: PodMigrationJob {name} is gone"
        pod, status = job.spec.pod_ref.key, job.status
        if not job.is_active:
            return f"{moves_as_unit(unit.name)}: {pod} stays: {status.message or status.reason or status.phase}"
        if is_late(job, step.now_ns) or is_old(job, step.now_ns):
            return f"{moves_as_unit(unit.name)}: {pod} stays: its job is over time"
        if step.facts.pod(pod, job.spec.pod_ref.uid) is None:
            return f"{moves_as_unit(unit.name)}: {pod} is gone"
    return ""


def waits_for(step: Step, unit: JobUnit, own: str) -> str:
    """Returns the first member of a unit that cannot leave now, as a phrase; empty where all can: each has a place."""
    for name, uid in sorted(unit.jobs.items()):
        if uid == own or step.state.has_evicted(uid):
            continue
        job = _job(step, name, uid)
        if job is None or not _can_leave(step, job):
            pod = name if job is None else job.spec.pod_ref.key
            return f"{unit.name} moves as a unit: {pod} cannot leave yet, since no place is held for it"
    return ""


def moves_as_unit(name: str) -> str:
    """Returns the rule, as the begin of a reason.

    Args:
        name: of the unit, with its kind, as `gang shop/train`.
    """
    return f"{name} moves as a unit or not at all"


def _job(step: Step, name: str, uid: str) -> PodMigrationJob | None:
    found = step.facts.jobs.get(name)
    return found if found is not None and found.uid == uid else None


def _can_leave(step: Step, job: PodMigrationJob) -> bool:
    """Reports whether a job would request its eviction now, by all that it rests on."""
    pod = step.facts.pod(job.spec.pod_ref.key, job.spec.pod_ref.uid)
    if pod is None or job.status.phase != RUNNING or job.spec.paused or must_wait(step, job, pod):
        return False
    found = step.state.eviction(pod.metadata.uid)
    if found is not None and (found.outcome is None or must_pause(found, step.now_ns)):
        return False
    place = step.facts.reservations.get(job.reservation.name if job.reservation else reservation_name(job))
    if place is None or not place.is_available or place.status.node_name in ("", pod.spec.node_name):
        return False
    return any(each.type == "Scheduled" and each.status == "True" for each in place.status.conditions)
