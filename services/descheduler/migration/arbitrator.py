"""The arbitrator: which of the waiting jobs may begin, in which order they are evaluated.

Jobs that free nodes cheaply come first; pods of one batch Job are evaluated one after the other, those of a Job that
already moves before others. Each job that passes counts for the limits of the next one.

Source: spec/descheduler.md 3.4; upstream pkg/descheduler/controllers/migration/arbitrator.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from services.descheduler.load_aware.pod_order import age_key, rank
from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.filter_chain import FilterChain
from services.descheduler.migration.migration_limits import MigrationLimits
from services.descheduler.migration.pod_migration_job import CASE, RUNNING, PodMigrationJob
from shared.kube.instants import SECOND


class Result(StrEnum):
    """The result for one job of a round."""

    PASSED = "passed"
    FAILED = "failed"
    WAITING = "waiting"


class Evaluated(NamedTuple):
    """A job and its result.

    Attributes:
        reason: why its pod may not be moved, as a phrase; empty for one that passed.
    """

    job: PodMigrationJob
    result: Result
    reason: str = ""


def arbitrate(
    facts: ClusterFacts, rules: MigrationArgs, waiting: Iterable[PodMigrationJob], passed: Mapping[str, object]
) -> list[Evaluated]:
    """Evaluates waiting jobs, in their order.

    Args:
        passed: uids of jobs that passed in an earlier round and have not ended.
    """
    passing = dict(passed)
    chain = FilterChain(facts, rules, MigrationLimits(facts, rules, passing, arbitrating=True))
    results = []
    for job in ordered(facts, waiting, passed):
        evaluated = _evaluate(chain, job)
        if evaluated.result is Result.PASSED:
            passing[job.uid] = None
        results.append(evaluated)
    return results


def _evaluate(chain: FilterChain, job: PodMigrationJob) -> Evaluated:
    pod = chain.facts.pod(job.spec.pod_ref.key)
    if pod is None:
        return Evaluated(job, Result.PASSED)  # the job itself finds that its pod is gone
    if pod.has_ended and CASE in job.annotations:
        reason = chain.removal(pod)
        return Evaluated(job, Result.WAITING, reason) if reason else Evaluated(job, Result.PASSED)
    if reason := chain.non_retryable(pod):
        return Evaluated(job, Result.FAILED, reason)
    if reason := chain.retryable(pod):
        return Evaluated(job, Result.WAITING, reason)
    return Evaluated(job, Result.PASSED)


def ordered(
    facts: ClusterFacts, waiting: Iterable[PodMigrationJob], passed: Mapping[str, object]
) -> list[PodMigrationJob]:
    """Sorts jobs by four stable sorts, of which the last decides: age, pod, batch Job, and that Job's moving pods."""
    jobs = sorted(waiting, key=lambda job: -(job.created_ns // SECOND))
    jobs.sort(key=lambda job: _pod_key(facts, job))
    jobs = _grouped(facts, jobs)
    moving = _moving_by_owner(facts, passed)
    jobs.sort(key=lambda job: -moving.get(_batch_owner(facts, job), 0))
    return jobs


def _pod_key(facts: ClusterFacts, job: PodMigrationJob) -> tuple[int, ...]:
    pod = facts.pod(job.spec.pod_ref.key)
    return (0,) if pod is None else (1, *rank(pod), age_key(pod))


def _grouped(facts: ClusterFacts, jobs: list[PodMigrationJob]) -> list[PodMigrationJob]:
    """Moves jobs whose pods one batch Job controls behind the first of them."""
    groups: dict[str, list[PodMigrationJob]] = {}
    for job in jobs:
        # A job without such an owner is a group of its own; no uid of an owner begins like this.
        groups.setdefault(_batch_owner(facts, job) or f"job {job.name}", []).append(job)
    return [job for group in groups.values() for job in group]


def _moving_by_owner(facts: ClusterFacts, passed: Mapping[str, object]) -> dict[str, int]:
    """Returns uid of a batch Job -> number of its pods whose jobs have passed or run."""
    found: dict[str, int] = {}
    for job in facts.jobs.values():
        owner = _batch_owner(facts, job)
        if owner and (job.has_passed or job.uid in passed or job.status.phase == RUNNING):
            found[owner] = found.get(owner, 0) + 1
    return found


def _batch_owner(facts: ClusterFacts, job: PodMigrationJob) -> str:
    """Returns the uid of the batch Job that controls the pod of a job; empty without one."""
    pod = facts.pod(job.spec.pod_ref.key)
    owner = None if pod is None else pod.metadata.controller
    return owner.uid if owner is not None and owner.kind == "Job" else ""
