"""Moves of a world at rest: every job has ended within its time, and nothing holds a place for one that has."""

from collections.abc import Iterator

from cli.dev.fault_simulation.migrations import JOB_TTL_S
from cli.dev.fault_simulation.world import World
from services.descheduler.migration.job_reservation import job_of
from shared.kube.instants import SECOND, instant_ns
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS

ENDS_WITHIN_NS = (JOB_TTL_S + 4) * SECOND
"""The time of creation is cut to seconds, the decision comes once a second, and is then written."""

LEFT = ("Succeeded", "Failed", "Aborted")


def unfinished_moves(world: World) -> Iterator[str]:
    """Yields jobs that should have ended, and places that nothing needs."""
    jobs = world.api.objects.get(MIGRATION_JOBS, {})
    young = set()
    for name, job in jobs.items():
        if world.now_ns() - instant_ns(job["metadata"]["creationTimestamp"]) < ENDS_WITHIN_NS:
            young.add(job["metadata"]["uid"])
        elif (phase := job.get("status", {}).get("phase", "")) not in LEFT:
            yield f"job {name} is older than its time to live, and {phase or 'has no phase'}"
    for name, body in world.api.objects[RESERVATIONS].items():
        job_uid, phase = job_of(body), body.get("status", {}).get("phase", "")
        if job_uid and job_uid not in young and phase not in ("Succeeded", "Failed"):
            yield f"Reservation {name} holds a place for job {job_uid}, which has ended, and is {phase or 'without a phase'}"
