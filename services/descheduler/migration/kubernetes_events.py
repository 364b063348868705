"""The Kubernetes Events of a PodMigrationJob and of the pod that it evicts: `kubectl describe` shows them on both.

A change of the job's status leaves an Event, and the same status none. Each reason of a job has one Event object, which
its next change overwrites; they are deleted once the job is gone. Source: spec/descheduler.md 5; the texts are those of
the conditions, where these have one.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from services.descheduler.migration import job_outcomes as names
from services.descheduler.migration.pod_migration_job import FAILED, SUCCEEDED, JobCondition, JobStatus, PodMigrationJob
from services.descheduler.service_manifest import COMPONENT, JOB_EVENTS
from shared.domain.desired_kubernetes_event import event_intent
from shared.events import Draft
from shared.events.intents import ObjectDesired
from shared.kube.resource_names import KUBERNETES_EVENTS

ACTION = "Migrating"
_PREFIX = JOB_EVENTS.partition("/")[2].removesuffix("*")
DESCHEDULED = "Descheduled"
"""Reason of the Event of a pod whose eviction was carried out."""

_WARN = (names.FAILED_CREATE_RESERVATION, names.UNSCHEDULABLE)
"""Reasons of conditions that are False for longer than expected."""

_FAILURES = (
    names.TIMEOUT,
    names.INVALID_POD_REF,
    names.MISSING_POD,
    names.MISSING_RESERVATION,
    names.FORBIDDEN,
    names.FAILED_CREATE_RESERVATION,
    names.GANG_STAYS,
)
"""Reasons of failures that leave an Event; upstream has none of the others."""

_DONE = {
    names.RESERVATION_CREATED: "A Reservation for the successor of the pod exists",
    names.RESERVATION_SCHEDULED: "A place for the successor of the pod is held on node {node}",
    names.POD_BOUND_RESERVATION: "",
    names.BOUND_POD_READY: "The successor of the pod is ready",
}
"""Type of a condition that leaves an Event once it is True -> its text, where the condition has none."""

_WAITS = {
    names.WAIT_FOR_POD_BIND: "The pod is gone; no successor has taken the place that is held for it",
    names.WAIT_FOR_POD_READY: "The successor of the pod is bound and not ready yet",
}


class Noted(NamedTuple):
    """An Event: its reason, its text, and whether it is a warning."""

    reason: str
    text: str
    warns: bool = False


def event_drafts(job: PodMigrationJob, after: JobStatus, now_ns: int) -> Iterator[Draft]:
    """Yields the intents to write the Events of a change of status.

    Args:
        job: with its status before.
    """
    about = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob", "name": job.name}
    for each in (*_of_conditions(job.status, after), *_of_end(job, after)):
        yield _draft(job, "default", about | {"uid": job.uid}, each, now_ns)
    if not _evicted(job.status) and (condition := _evicted(after)) is not None:
        pod = job.spec.pod_ref
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        text = condition.message or f'Pod "{pod.key}" evicted by PodMigrationJob {job.name}'
        yield _draft(job, pod.namespace, about, Noted(DESCHEDULED, text), now_ns)


def outdated_events(written: Iterable[str], there: Iterable[str]) -> Iterator[Draft]:
    """Yields the intents to delete the Events of jobs that are gone.

    Args:
        written: `namespace/name` of the Events.
        there: uids of the jobs that exist.
    """
    uids = frozenset(there)
    for key in sorted(written):
        if _job_of(key) not in uids:
            yield Draft(ObjectDesired(resource=KUBERNETES_EVENTS, name=key, body=None))


def is_job_event(key: str) -> bool:
    """Reports whether an Event is about a job, by its `namespace/name`."""
    return key.partition("/")[2].startswith(_PREFIX)


def _job_of(key: str) -> str:
    """Returns the uid of the job that an Event is about."""
    return key.partition("/")[2].removeprefix(_PREFIX).rpartition(".")[0]


def _draft(job: PodMigrationJob, namespace: str, about: dict[str, str], noted: Noted, now_ns: int) -> Draft:
    key = JOB_EVENTS.replace("*", namespace, 1).removesuffix("*") + f"{job.uid}.{noted.reason.lower()}"
    intent = event_intent(
        key,
        about,
        reason=noted.reason,
        message=noted.text,
        component=COMPONENT,
        now_ns=now_ns,
        type_="Warning" if noted.warns else "Normal",
        action=ACTION,
    )
    return Draft(intent)


def _of_conditions(before: JobStatus, after: JobStatus) -> Iterator[Noted]:
    """Yields the Events of the conditions that changed."""
    for each in after.conditions:
        old = before.condition(each.type)
        if old is not None and (old.status, old.reason, old.message) == (each.status, each.reason, each.message):
            continue
        noted = _of_eviction(each) if each.type == names.EVICTION else _of_step(each, after)
        if noted is not None:
            yield noted


def _of_eviction(condition: JobCondition) -> Noted | None:
    if condition.reason == names.FAILED_EVICT:
        return Noted(names.EVICTING, condition.message, warns=True)
    if condition.reason == names.EVICTING:
        return Noted(names.EVICTING, condition.message)
    if condition.reason == names.EVICT_COMPLETE:
        return Noted(names.EVICT_COMPLETE, condition.message or "The pod is gone")
    return None


def _of_step(condition: JobCondition, status: JobStatus) -> Noted | None:
    if condition.status == "True" and condition.type in _DONE:
        return Noted(condition.type, condition.message or _DONE[condition.type].format(node=status.node_name))
    if condition.reason in _WAITS:
        return Noted(condition.reason, condition.message or _WAITS[condition.reason])
    if condition.reason in _WARN and condition.type != names.POD_SCHEDULED:
        return Noted(condition.reason, condition.message, warns=True)
    return None


def _of_end(job: PodMigrationJob, after: JobStatus) -> Iterator[Noted]:
    """Yields the Event of the end of a job. One that only evicted its pod has none of its success, as upstream."""
    if after.phase == job.status.phase:
        return
    if after.phase == FAILED and after.reason in _FAILURES:
        yield Noted(after.reason, after.message, warns=True)
    if after.phase == SUCCEEDED and (after.is_true(names.POD_BOUND_RESERVATION) or after.is_true(names.POD_SCHEDULED)):
        yield Noted(names.COMPLETE, after.message)


def _evicted(status: JobStatus) -> JobCondition | None:
    """Returns the condition of an eviction that was carried out; None before."""
    found = status.condition(names.EVICTION)
    return found if found is not None and found.reason in (names.EVICTING, names.EVICT_COMPLETE) else None
