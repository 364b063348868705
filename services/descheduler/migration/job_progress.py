"""The status of a job while its steps are decided: conditions, the step in progress, and the end.

A change is recorded as the desired status; without a change nothing is. Source: spec/descheduler.md 3.1.
"""

from typing import Any

from msgspec.structs import replace

from services.descheduler.migration.job_outcomes import COMPLETE
from services.descheduler.migration.kubernetes_events import event_drafts
from services.descheduler.migration.pod_migration_job import (
    FAILED,
    RUNNING,
    SUCCEEDED,
    JobCondition,
    JobStatus,
    ObjectReference,
    PodMigrationJob,
)
from shared.events import Draft
from shared.events.intents import FieldsDesired
from shared.events.migration import MigrationEnded
from shared.kube.instants import SECOND, instant_text
from shared.kube.json_text import json_value
from shared.kube.resource_names import MIGRATION_JOBS

STATUS, SPEC, ARBITRATION = "status", "spec", "arbitration"
"""Field groups of a job."""


class JobProgress:
    """The changes that one decision makes to a job.

    Attributes:
        job: as it was before, with its status in force.
        status: as it will be.
    """

    def __init__(self, job: PodMigrationJob, now_ns: int) -> None:
        self.job, self.status = job, job.status
        self._now_ns = now_ns
        self._at = instant_text(now_ns // SECOND * SECOND)
        self._drafts: list[Draft] = []
        self._evicted_only = False

    @property
    def is_over(self) -> bool:
        """Reports whether the job has ended."""
        return self.status.phase not in ("", "Pending", RUNNING)

    def add(self, *drafts: Draft) -> None:
        """Adds events."""
        self._drafts += drafts

    def begin(self) -> None:
        """Starts the job."""
        self.status = replace(self.status, phase=RUNNING)

    def condition(self, kind: str, *, true: bool, reason: str = "", message: str = "") -> None:
        """Sets a condition; one that changed is the step in progress."""
        before = self.status.condition(kind)
        status = "True" if true else "False"
        if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
            return
        is_same = before is not None and before.status == status
        found = JobCondition(
            type=kind,
            status=status,
            reason=reason,
            message=message,
            last_probe_time=self._at,
            last_transition_time=before.last_transition_time if before is not None and is_same else self._at,
        )
        others = tuple(found if each.type == kind else each for each in self.status.conditions)
        conditions = others if before is not None else (*others, found)
        self.status = replace(self.status, status=kind, reason=reason, message=message, conditions=conditions)

    def place(self, node: str) -> None:
        """Records the node of the Reservation."""
        self.status = replace(self.status, node_name=node)

    def bound(self, pod: ObjectReference) -> None:
        """Records the new pod."""
        self.status = replace(self.status, pod_ref=pod)

    def fail(self, reason: str, message: str) -> None:
        """Ends the job without success."""
        self.status = replace(self.status, phase=FAILED, reason=reason, message=message)

    def succeed(self, message: str, *, evicted_only: bool = False) -> None:
        """Ends the job with success.

        Args:
            evicted_only: it awaited no successor.
        """
        self._evicted_only = evicted_only
        self.status = replace(self.status, phase=SUCCEEDED, status=COMPLETE, reason="", message=message)

    def drafts(self) -> list[Draft]:
        """Returns the events of the decision: the status last, if it changed, with the Kubernetes Events of the change."""
        if self.status == self.job.status:
            return self._drafts
        found = [*self._drafts, Draft(desired_status(self.job, self.status))]
        found += event_drafts(self.job, self.status, self._now_ns)
        if self.is_over:
            phase, reason, message = self.status.phase, self.status.reason, self.status.message
            found.append(ended(self.job, phase, reason, message, evicted_only=self._evicted_only))
        return found


def desired_status(job: PodMigrationJob, status: JobStatus) -> FieldsDesired:
    """Returns the intent to write a status."""
    patch: dict[str, Any] = {"status": json_value(status)}
    return FieldsDesired(
        resource=MIGRATION_JOBS, name=job.name, fields=STATUS, patch=patch, subresource="status", uid=job.uid
    )


def ended(
    job: PodMigrationJob, phase: str, reason: str = "", message: str = "", *, evicted_only: bool = False
) -> Draft:
    """Returns the event that a job is over."""
    named = job.spec.pod_ref
    return Draft(
        MigrationEnded(
            job=job.name,
            job_uid=job.uid,
            phase=phase,
            reason=reason,
            message=message,
            pod=named.key,
            pod_uid=named.uid,
            evicted_only=evicted_only,
        )
    )
