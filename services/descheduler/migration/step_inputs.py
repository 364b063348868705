"""The inputs of the steps of one job, and whether it may take any: its time, and the evictions of its workload lately."""

from typing import Any, NamedTuple

from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.migration_state import MigrationState
from services.descheduler.migration.pod_migration_job import EVICT_ANNOTATION, PodMigrationJob
from services.descheduler.migration.rate_limits import RateLimits
from shared.kube.instants import SECOND
from shared.kube.pod import Pod

KEPT_NS, KEPT_WITHOUT_TTL_NS = 300 * SECOND, 1800 * SECOND
"""A job is deleted this long after its time-out; one without a time-out this long after its creation."""


class Desired(NamedTuple):
    """The Reservation of a job as it was desired, and the label that one which existed before was to get."""

    reservation: dict[str, Any] | None
    reservation_order: dict[str, Any] | None


class Step(NamedTuple):
    """The inputs of the steps of one job."""

    state: MigrationState
    facts: ClusterFacts
    args: MigrationArgs
    limits: RateLimits
    desired: Desired
    now_ns: int


def is_late(job: PodMigrationJob, now_ns: int) -> bool:
    """Reports whether the time of a job is over."""
    return bool(job.ttl_ns) and now_ns - job.created_ns >= job.ttl_ns


def is_old(job: PodMigrationJob, now_ns: int) -> bool:
    """Reports whether a job is so old that it is deleted. Its phase does not count."""
    kept_ns = job.ttl_ns + KEPT_NS if job.ttl_ns else KEPT_WITHOUT_TTL_NS
    return now_ns - job.created_ns >= kept_ns


def must_wait(step: Step, job: PodMigrationJob, pod: Pod) -> bool:
    """Reports whether too many pods of the same workload, or namespace, were evicted lately."""
    if EVICT_ANNOTATION in job.annotations or step.state.eviction(pod.metadata.uid) is not None:
        return False
    return bool(step.limits.object_exceeded(pod))
