"""The part of the descheduler's State that migration writes: its own decisions, and the outcomes of its evictions.

Two contexts are folded, each into fields of its own: `cluster` (facts, outcomes, aborts) and `descheduling` (jobs that
passed, evictions requested). What needs both is computed on demand.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from services.descheduler.migration.cluster_facts import ClusterFacts, StoredFacts
from services.descheduler.migration.job_reservation import job_of
from services.descheduler.migration.kubernetes_events import is_job_event
from services.descheduler.migration.pod_migration_job import ABORTED, DRAIN, SUCCEEDED
from services.descheduler.state.observed_pods import ObservedPods
from shared.events import RecordedEvent
from shared.events.cluster import (
    DesiredStateApplied,
    DesiredStateRejected,
    EvictionFailed,
    EvictionRejected,
    EvictionSuppressed,
    IntentRefused,
    MissingPermission,
    ObjectDeleted,
    ObjectObserved,
    PodEvicted,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.migration import (
    DrainEnded,
    DrainRequested,
    MigrationArbitrated,
    MigrationEnded,
    MigrationEvictionDecided,
)
from shared.kube.instants import SECOND
from shared.kube.resource_names import CORDON, KUBERNETES_EVENTS, MIGRATION_JOBS, RESERVATIONS

OWN = "descheduling"
SOFT_FIELDS = "soft-eviction"
"""Field group of a pod: the annotation that asks another program to remove it."""

KEPT_NS = 24 * 3600 * SECOND
"""Evictions count for the limiters of objects for at most so long."""


class Request(msgspec.Struct, frozen=True, array_like=True):
    """An eviction that a job requested.

    Attributes:
        seq: of the intent with the effect, in `descheduling`.
        tries: evictions of the pod that were requested so far, this one included.
    """

    seq: int
    job_uid: str
    pod_uid: str
    namespace: str
    controller: str
    at_ns: int
    tries: int


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of an intent.

    Attributes:
        done: the pod is terminating, gone, or marked for a soft eviction.
        reason: why it is not done.
    """

    done: bool
    reason: str
    at_ns: int


class OpenRequest(NamedTuple):
    """The newest eviction of a pod, and its outcome; None while it is being carried out."""

    request: Request
    outcome: Outcome | None


class JobUnit(msgspec.Struct, frozen=True, array_like=True):
    """Jobs whose pods move as a unit: the members of a gang, or the victims of a case for a waiting unit.

    Attributes:
        gang, case: one of them; the other is empty.
        jobs: name -> uid of all their jobs.
        destination: node that the scheduler found for the pod of one job, together with the others; empty for that of
            its case.
    """

    gang: str
    jobs: dict[str, str]
    destination: str = ""
    case: str = ""

    @property
    def name(self) -> str:
        """Of the unit, with its kind."""
        return f"case {self.case}" if self.case else f"gang {self.gang}"


class Drain(msgspec.Struct):
    """A drain that goes on.

    Attributes:
        seq: of its DrainRequested.
        cordons: the cordon of the node was desired.
    """

    by: str
    reason: str
    seq: int
    cordons: bool = False


class DrainJob(msgspec.Struct, frozen=True, array_like=True):
    """A job of a drain.

    Attributes:
        failure: why it failed; empty for one that succeeded, or has not ended.
        evicted_only: it succeeded, and awaited no successor.
    """

    node: str
    pod_uid: str
    failure: str = ""
    evicted_only: bool = False


def outcome_of(record: RecordedEvent) -> Outcome | None:
    """Returns the outcome of an eviction that an event of `cluster` is; None for an event of another kind."""
    match record.event:
        case PodEvicted() | DesiredStateApplied(resource="pods"):
            return Outcome(done=True, reason="", at_ns=record.at_ns)
        case (
            EvictionRejected(reason=reason)
            | EvictionFailed(reason=reason)
            | DesiredStateRejected(resource="pods", reason=reason)
            | IntentRefused(reason=reason)
        ):
            pass
        case EvictionSuppressed():
            reason = "shadow mode evicts no pod"
        case MissingPermission(rule=rule):
            reason = f"the gateway lacks the permission: {rule}"
        case _:
            return None
    return Outcome(done=False, reason=reason, at_ns=record.at_ns)


class MigrationState:
    """Facts of the cluster and the progress of migrations.

    Attributes:
        facts: see `ClusterFacts`.
        aborted: uids of jobs that a user has aborted (`cluster`).
        rejected: Reservation -> (instant, reason) of a creation that the API server rejected (`cluster`).
        outcomes: seq in `descheduling` -> outcome of an eviction (`cluster`).
        passed: uid -> name of the jobs that passed arbitration and have not ended (`descheduling`).
        units: uid -> the unit of a job that passed with others, until it has ended (`descheduling`).
        requests: seq -> eviction that a job requested, oldest first (`descheduling`).
        made: Reservation -> uid of the job for which it was created, until its deletion was decided (`descheduling`).
        deleted: uid -> name of the jobs whose deletion was decided (`descheduling`).
        events: `namespace/name` of the Kubernetes Events about jobs that were written (`descheduling`).
        drains: node -> its drain (`descheduling`).
        drain_jobs: name -> job of an open drain that has not ended (`descheduling`).
        drain_ends: name -> job of an open drain that has ended, the oldest first (`descheduling`).
    """

    def __init__(self, pods: ObservedPods) -> None:
        self.facts = ClusterFacts(pods)
        self.aborted: dict[str, None] = {}
        self.rejected: dict[str, tuple[int, str]] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.passed: dict[str, str] = {}
        self.units: dict[str, JobUnit] = {}
        self.requests: dict[int, Request] = {}
        self.made: dict[str, str] = {}
        self.deleted: dict[str, str] = {}
        self.events: dict[str, None] = {}
        self.drains: dict[str, Drain] = {}
        self.drain_jobs: dict[str, DrainJob] = {}
        self.drain_ends: dict[str, DrainJob] = {}
        self._decided: dict[str, MigrationEvictionDecided] = {}
        self._newest: dict[str, int] = {}

    def apply_cluster(self, record: RecordedEvent) -> None:
        """Folds an event of `cluster`."""
        event, cause = record.event, record.cause
        self.facts.apply(event)
        match event:
            case ObjectObserved(resource=resource, uid=uid, object=body) if resource == MIGRATION_JOBS:
                if (body.get("status") or {}).get("phase") == ABORTED:
                    self.aborted[uid] = None
            case ObjectObserved(resource=resource, name=name) if resource == RESERVATIONS:
                self.rejected.pop(name, None)
            case ObjectDeleted(resource=resource, uid=uid) if resource == MIGRATION_JOBS:
                self.aborted.pop(uid, None)
                self.rejected.pop(uid, None)
            case DesiredStateRejected(resource=resource, name=name, reason=reason) if (
                resource in (RESERVATIONS, MIGRATION_JOBS) and cause is not None and cause.context == OWN
            ):
                self.rejected[name] = record.at_ns, reason
            case _ if cause is not None and cause.context == OWN and (outcome := outcome_of(record)) is not None:
                self.outcomes[cause.seq] = outcome
        while self.outcomes and self.outcomes[first := next(iter(self.outcomes))].at_ns < record.at_ns - KEPT_NS:
            del self.outcomes[first]

    def apply_own(self, record: RecordedEvent) -> None:
        """Folds an event of `descheduling`."""
        self._apply_drain(record)
        match record.event:
            case MigrationArbitrated(job=job, job_uid=uid) as event:
                self.passed[uid] = job
                if event.gang or event.case:
                    self.units[uid] = JobUnit(event.gang, event.together, event.destination, event.case)
            case MigrationEnded() as ended:
                self._ended(ended)
            case MigrationEvictionDecided(pod_uid=uid) as decided:
                self._decided[uid] = decided
            case EvictionRequested(pod_uid=uid):
                self._requested(uid, record)
            case FieldsDesired(resource="pods", fields=fields, uid=uid) if fields == SOFT_FIELDS:
                self._requested(uid, record)
        while self.requests and self.requests[first := next(iter(self.requests))].at_ns < record.at_ns - KEPT_NS:
            self._forget(self.requests.pop(first))

    def _apply_drain(self, record: RecordedEvent) -> None:
        match record.event:
            case DrainRequested(node=node, by=by, reason=reason):
                self.drains[node] = Drain(by, reason, record.seq)
            case DrainEnded(node=node):
                self.drains.pop(node, None)
                self.drain_jobs = {name: job for name, job in self.drain_jobs.items() if job.node != node}
                self.drain_ends = {name: job for name, job in self.drain_ends.items() if job.node != node}
            case FieldsDesired(resource="nodes", name=node, fields=fields) if fields == CORDON and node in self.drains:
                self.drains[node].cordons = True
            case ObjectDesired(resource=resource, name=name, body=dict() as body) if resource == MIGRATION_JOBS:
                drained = ((body.get("metadata") or {}).get("labels") or {}).get(DRAIN)
                if drained in self.drains:
                    self.drain_jobs[name] = DrainJob(drained, body["spec"]["podRef"]["uid"])
            case ObjectDesired(resource=resource, name=name, body=body) if resource == RESERVATIONS:
                if body is None:
                    self.made.pop(name, None)
                elif job := job_of(body):
                    self.made[name] = job
            case ObjectDesired(resource=resource, name=name, body=None, uid=uid) if resource == MIGRATION_JOBS:
                self.deleted[uid] = name
            case ObjectDesired(resource=resource, name=name, body=body) if resource == KUBERNETES_EVENTS:
                if body is None:
                    self.events.pop(name, None)
                elif is_job_event(name):
                    self.events[name] = None

    def _ended(self, ended: MigrationEnded) -> None:
        self.passed.pop(ended.job_uid, None)
        self.units.pop(ended.job_uid, None)
        if not ended.phase:
            self.deleted.pop(ended.job_uid, None)
        job = self.drain_jobs.pop(ended.job, None)
        if job is None and ended.drain in self.drains:
            job = DrainJob(ended.drain, ended.pod_uid)  # its creation has left the log
        if job is not None:
            failure = "" if ended.phase == SUCCEEDED else ended.message or ended.reason or "the job was deleted"
            self.drain_ends[ended.job] = replace(job, failure=failure, evicted_only=ended.evicted_only)

    def _requested(self, uid: str, record: RecordedEvent) -> None:
        decided = self._decided.pop(uid, None)
        if decided is None:
            return  # a copy that retention carried forward
        before = self._newest.get(uid)
        tries = 1 if before is None else self.requests[before].tries + 1
        self.requests[record.seq] = Request(
            record.seq,
            decided.job_uid,
            uid,
            decided.pod.partition("/")[0],
            decided.controller,
            record.at_ns,
            tries,
        )
        self._newest[uid] = record.seq

    def _forget(self, request: Request) -> None:
        if self._newest.get(request.pod_uid) == request.seq:
            del self._newest[request.pod_uid]

    # -- questions

    def drain_jobs_in_creation(self) -> dict[str, str]:
        """Returns pod uid -> name of the jobs of drains that `cluster` does not have."""
        return {job.pod_uid: name for name, job in self.drain_jobs.items() if name not in self.facts.jobs}

    def failed_drain_jobs(self, pod_uid: str) -> list[str]:
        """Returns why jobs of open drains failed for a pod."""
        return [job.failure for job in self.drain_ends.values() if job.pod_uid == pod_uid and job.failure]

    def moved(self, node: str) -> int:
        """Returns the number of jobs of the drain of a node that saw the successor of their pod bound."""
        return sum(job.node == node and not job.failure and not job.evicted_only for job in self.drain_ends.values())

    def evicted_without_successor(self, node: str) -> int:
        """Returns the number of jobs of the drain of a node that evicted their pod, and awaited no successor."""
        return sum(job.node == node and job.evicted_only for job in self.drain_ends.values())

    def eviction(self, pod_uid: str) -> OpenRequest | None:
        """Returns the newest eviction of a pod that was requested; None for none."""
        seq = self._newest.get(pod_uid)
        return None if seq is None else OpenRequest(self.requests[seq], self.outcomes.get(seq))

    def is_in_flight(self, request: Request) -> bool:
        """Reports whether the gateway may still carry out an eviction."""
        return request.seq not in self.outcomes

    def evicted(self) -> Iterator[Request]:
        """Yields the evictions that were carried out, or may be, oldest first."""
        for seq, request in self.requests.items():
            if (found := self.outcomes.get(seq)) is None or found.done:
                yield request

    def has_evicted(self, job_uid: str) -> bool:
        """Reports whether an eviction that a job requested was carried out, or may be."""
        return any(request.job_uid == job_uid for request in self.evicted())

    # -- snapshots

    def stored(self) -> "StoredMigration":
        """Returns the stored form."""
        return StoredMigration(
            self.facts.stored(),
            self.aborted,
            self.rejected,
            list(self.outcomes.items()),
            self.passed,
            self.units,
            self.made,
            self.deleted,
            self.events,
            self.drains,
            self.drain_jobs,
            list(self.drain_ends.items()),
            list(self.requests.values()),
            self._decided,
        )

    def restore(self, stored: "StoredMigration") -> None:
        """Takes over a stored form."""
        self.facts.restore(stored.facts)
        self.aborted, self.rejected, self.outcomes = stored.aborted, stored.rejected, dict(stored.outcomes)
        self.passed, self._decided = stored.passed, stored.decided
        self.units, self.made, self.deleted = stored.units, stored.made, stored.deleted
        self.events = stored.events
        self.drains, self.drain_jobs, self.drain_ends = stored.drains, stored.drain_jobs, dict(stored.drain_ends)
        for request in stored.requests:
            self.requests[request.seq] = request
            self._newest[request.pod_uid] = request.seq


class StoredMigration(msgspec.Struct):
    """The layout of a snapshot; see `MigrationState`."""

    facts: StoredFacts
    aborted: dict[str, None]
    rejected: dict[str, tuple[int, str]]
    outcomes: list[tuple[int, Outcome]]
    passed: dict[str, str]
    units: dict[str, JobUnit]
    made: dict[str, str]
    deleted: dict[str, str]
    events: dict[str, None]
    drains: dict[str, Drain]
    drain_jobs: dict[str, DrainJob]
    drain_ends: list[tuple[str, DrainJob]]
    requests: list[Request]
    decided: dict[str, MigrationEvictionDecided]
