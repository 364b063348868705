"""The arbitrator: which of the waiting jobs may begin, in which order they are evaluated.

Jobs that free nodes cheaply come first; pods of one batch Job are evaluated one after the other, those of a Job that
already moves before others. Each job that passes counts for the limits of the next one.

Source: spec/descheduler.md 3.4; upstream pkg/descheduler/controllers/migration/arbitrator.
"""

from collections.abc import Container, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from services.descheduler.load_aware.pod_order import age_key, rank
from services.descheduler.migration.cluster_facts import ClusterFacts
from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.filter_chain import FilterChain
from services.descheduler.migration.gang_minimum import gang_without_spare
from services.descheduler.migration.gang_unit import moves_as_unit
from services.descheduler.migration.migration_limits import MigrationLimits
from services.descheduler.migration.migration_state import JobUnit
from services.descheduler.migration.pod_migration_job import (
    CASE,
    DESTINATION,
    EVICT_DIRECTLY,
    RUNNING,
    PodMigrationJob,
)
from shared.domain.move_destinations import MOST_MOVES, DestinationsResponse
from shared.kube.instants import SECOND
from shared.kube.pod import Pod


class Result(StrEnum):
    """The result for one job of a round."""

    PASSED = "passed"
    FAILED = "failed"
    WAITING = "waiting"


class Evaluated(NamedTuple):
    """A job and its result.

    Attributes:
        reason: why its pod may not be moved, as a phrase; empty for one that passed.
        unit: of a job that passed with others.
        needs_node: it passes once the scheduler has found a destination for it, together with the others of its gang.
    """

    job: PodMigrationJob
    result: Result
    reason: str = ""
    unit: JobUnit | None = None
    needs_node: bool = False


class Gangs(NamedTuple):
    """The inputs of units besides the facts.

    Attributes:
        cases: for waiting units: case -> job -> uid of its pod. Its jobs move as a unit.
        in_creation: uids of pods whose jobs were decided, and are not there yet.
        found: the scheduler's answer about the pods of the units; without any at first.
    """

    in_creation: Container[str] = ()
    found: DestinationsResponse | None = None
    cases: Mapping[str, Mapping[str, str]] = {}


NO_GANGS = Gangs()


def arbitrate(
    facts: ClusterFacts,
    rules: MigrationArgs,
    waiting: Iterable[PodMigrationJob],
    passed: Mapping[str, object],
    gangs: Gangs = NO_GANGS,
) -> list[Evaluated]:
    """Evaluates waiting jobs, in their order; the jobs of a gang that cannot spare a member together, where the first of
    them is, and so are those of a case for a waiting unit.

    Args:
        passed: uids of jobs that passed in an earlier round and have not ended.
    """
    passing = dict(passed)
    chain = FilterChain(facts, rules, MigrationLimits(facts, rules, passing, arbitrating=True))
    results: list[Evaluated] = []
    jobs = ordered(facts, waiting, passed)
    units = _units(facts, rules, jobs, gangs)
    for job in jobs:
        if (unit := units.of.get(job.uid)) is not None:
            if members := units.members.pop(unit, None):
                together = _evaluate_unit(chain, unit, members, gangs)
                passing.update({each.job.uid: None for each in together if each.result is Result.PASSED})
                results += together
            continue
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
    mode = job.mode(chain.rules.default_mode)
    if reason := chain.non_retryable(pod, mode):
        return Evaluated(job, Result.FAILED, reason)
    if reason := chain.retryable(pod, mode):
        return Evaluated(job, Result.WAITING, reason)
    return Evaluated(job, Result.PASSED)


class _Unit(NamedTuple):
    """A gang that cannot spare a member, or a case for a waiting unit; the other name is empty."""

    gang: str
    case: str = ""


class _Units(NamedTuple):
    """The waiting jobs of units: unit of each by uid, and job and pod of each unit."""

    of: dict[str, _Unit]
    members: dict[_Unit, list[tuple[PodMigrationJob, Pod]]]


def _units(facts: ClusterFacts, rules: MigrationArgs, jobs: Iterable[PodMigrationJob], gangs: Gangs) -> _Units:
    case_of = {job: case for case, names in gangs.cases.items() for job in names}
    found = _Units({}, {})
    for job in jobs:
        pod = facts.pod(job.spec.pod_ref.key)
        if pod is None or pod.has_ended or job.mode(rules.default_mode) == EVICT_DIRECTLY:
            continue
        unit = _Unit(gang_without_spare(facts, pod))
        if not unit.gang and job.name in case_of:
            unit = _Unit("", case_of[job.name])
        if any(unit):
            found.of[job.uid] = unit
            members = found.members.setdefault(unit, [])
            if all(each.metadata.uid != pod.metadata.uid for _, each in members):  # a second job of a pod waits
                members.append((job, pod))
    return found


def _evaluate_unit(
    chain: FilterChain, unit: _Unit, members: list[tuple[PodMigrationJob, Pod]], gangs: Gangs
) -> list[Evaluated]:
    """Evaluates the jobs of a unit: all of them pass, or none. They do not count for the limits of each other: none of
    the moves is worth anything without the others.
    """
    gang, case = unit
    name = f"case {case}" if case else f"gang {gang}"

    def for_all(result: Result, reason: str, *, needs_node: bool = False) -> list[Evaluated]:
        return [Evaluated(job, result, reason, needs_node=needs_node) for job, _ in members]

    for _, pod in members:
        if reason := chain.never(pod):
            return for_all(Result.FAILED, f"{moves_as_unit(name)}: {pod.metadata.key} stays: {reason}")
    for _, pod in members:
        if reason := (chain.limits.moves_in_gang(pod) if gang else "") or chain.not_now(pod):
            return for_all(Result.WAITING, f"{moves_as_unit(name)}: {pod.metadata.key} waits: {reason}")
    jobs = {job.name: job.uid for job, _ in members}
    of_unit = gangs.cases[case].values() if case else [pod.metadata.uid for pod in chain.facts.pods.of_gang(gang)]
    if any(uid in gangs.in_creation for uid in of_unit):
        return for_all(Result.WAITING, f"{moves_as_unit(name)}: the job of another member is being made")
    if case and (missing := sorted(gangs.cases[case].keys() - jobs.keys())):
        return for_all(Result.FAILED, f"{moves_as_unit(name)}: PodMigrationJob {missing[0]} does not wait any more")
    if len(members) > MOST_MOVES:
        return for_all(Result.FAILED, f"{moves_as_unit(name)}: {len(members)} pods are more than {MOST_MOVES}")
    if all(DESTINATION in job.annotations for job, _ in members):
        return [Evaluated(job, Result.PASSED, unit=JobUnit(gang, jobs, case=case)) for job, _ in members]
    nodes = {} if gangs.found is None else gangs.found.nodes
    refused = {} if gangs.found is None else gangs.found.refused
    for _, pod in members:
        if no_place := refused.get(pod.metadata.uid):
            return for_all(Result.FAILED, f"{moves_as_unit(name)}: no place for {pod.metadata.key}: {no_place}")
    if any(pod.metadata.uid not in nodes for _, pod in members):
        return for_all(Result.WAITING, f"{moves_as_unit(name)}: the scheduler has not answered", needs_node=True)
    return [
        Evaluated(job, Result.PASSED, unit=JobUnit(gang, jobs, nodes[pod.metadata.uid], case)) for job, pod in members
    ]


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
