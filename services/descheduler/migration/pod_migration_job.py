"""PodMigrationJob objects: the request to move one pod to another node, and how far it has come.

Source: spec/api.md 1.6, spec/descheduler.md 3.1; upstream apis/scheduling/v1alpha1/pod_migration_job_types.go.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import field

from shared.kube.amounts_as_text import UnreadableObject, read_object
from shared.kube.instants import BadTime, duration_ns, instant_ns
from shared.kube.meta import KubeStruct, Metadata
from shared.type_error_words import field_fault

PENDING, RUNNING, SUCCEEDED, FAILED, ABORTED = "Pending", "Running", "Succeeded", "Failed", "Aborted"
ACTIVE = ("", PENDING, RUNNING)
"""Phases that may change; a job without a phase is pending."""

RESERVATION_FIRST, EVICT_DIRECTLY = "ReservationFirst", "EvictDirectly"

EVICT_POLICY = "koordinator.sh/evict-policy"
"""Label of a job, and of a pod: the method of its eviction."""
EVICT_REASON = "koordinator.sh/evict-reason"
EVICT_TRIGGER = "koordinator.sh/evict-trigger"
CREATED_BY = "koordinator.sh/job-created-by"
CREATOR = "koordstream-descheduler"
"""The mark of jobs that this system created; those with another mark belong to another descheduler."""
DESTINATION = "descheduler.koordstream/destination"
"""Annotation of a job: the only node where its place may be held; empty or absent for any but the pod's own."""
CASE = "descheduler.koordstream/case"
"""Annotation of a job: the case of the descheduler that it belongs to."""
DRAIN = "descheduler.koordinator.sh/drain"
"""Label of a job: the node that is drained."""
PASSED_ARBITRATION = "descheduler.koordinator.sh/passed-arbitration"
EVICT_ANNOTATION = "descheduler.alpha.kubernetes.io/evict"
"""Annotation of a pod that may always be evicted, and of a job that no object limiter delays."""


class ObjectReference(KubeStruct, frozen=True):
    """A reference to an object; an absent part is empty."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.name}"


class ReservationOptions(KubeStruct, frozen=True):
    """The reservation of a job: one that exists, or the template of one to create."""

    reservation_ref: ObjectReference | None = None
    template: dict[str, Any] | None = None


class DeleteOptions(KubeStruct, frozen=True):
    """Options of an eviction; those that this system passes on."""

    grace_period_seconds: int | None = None


class JobSpec(KubeStruct, frozen=True):
    """The request.

    Attributes:
        ttl: a Go duration; 0 or absent: the job never times out.
        mode: RESERVATION_FIRST or EVICT_DIRECTLY; empty for the default of the configuration.
    """

    pod_ref: ObjectReference = ObjectReference()
    paused: bool = False
    ttl: str | None = None
    mode: str = ""
    reservation_options: ReservationOptions | None = None
    delete_options: DeleteOptions | None = None


class JobCondition(KubeStruct, frozen=True):
    """One step of a job."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class JobStatus(KubeStruct, frozen=True):
    """How far a job has come.

    Attributes:
        status: type of the condition that changed last, or Complete.
        node_name: node of the reservation.
        pod_ref: the new pod.
    """

    phase: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[JobCondition, ...] = ()
    node_name: str = ""
    pod_ref: ObjectReference | None = None

    def condition(self, kind: str) -> JobCondition | None:
        """Returns the condition of a type; None without it."""
        return next((each for each in self.conditions if each.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """Reports whether the condition of a type is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"


class PodMigrationJob(KubeStruct, frozen=True):
    """A job as kept in events."""

    metadata: Metadata = field(default_factory=Metadata)
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def name(self) -> str:
        """Returns its name; jobs have no namespace."""
        return self.metadata.name

    @property
    def uid(self) -> str:
        """Returns its uid."""
        return self.metadata.uid

    @property
    def annotations(self) -> Mapping[str, str]:
        """Returns its annotations."""
        return self.metadata.annotations or {}

    @property
    def is_active(self) -> bool:
        """Reports whether the job may still change."""
        return self.status.phase in ACTIVE

    @property
    def has_passed(self) -> bool:
        """Reports whether the arbitrator has marked it as passed."""
        return self.annotations.get(PASSED_ARBITRATION) == "true"

    @property
    def created_ns(self) -> int:
        """Returns the instant of its creation; 0 where it is unreadable."""
        return read_instant(self.metadata.creation_timestamp)

    @property
    def ttl_ns(self) -> int:
        """Returns the time after which it fails; 0 for never."""
        return duration_ns(self.spec.ttl) if self.spec.ttl else 0

    @property
    def reservation(self) -> ObjectReference | None:
        """Returns the reservation that it names."""
        options = self.spec.reservation_options
        found = None if options is None else options.reservation_ref
        return found if found is not None and found.name else None

    def mode(self, default: str) -> str:
        """Returns its mode; any text but EVICT_DIRECTLY means to reserve first."""
        mode = self.spec.mode or default
        return EVICT_DIRECTLY if mode == EVICT_DIRECTLY else RESERVATION_FIRST


class UnreadableJob(UnreadableObject):
    """An object that does not match the type of a PodMigrationJob."""


def read_job(body: Mapping[str, Any]) -> PodMigrationJob:
    """Reads an object.

    Raises:
        UnreadableJob: a field has another type, or the ttl is no duration.
    """
    try:
        job = read_object(body, PodMigrationJob)
        if job.spec.ttl and duration_ns(job.spec.ttl) < 0:
            raise UnreadableJob(f"spec.ttl is {job.spec.ttl!r}, which is negative")
    except msgspec.ValidationError as error:
        raise UnreadableJob(field_fault(error)) from error
    except BadTime as error:
        raise UnreadableJob(f"spec.ttl: {error}") from error
    return job


def read_instant(text: str | None) -> int:
    """Returns an instant in nanoseconds; 0 where it is absent or unreadable."""
    try:
        return instant_ns(text) if text else 0
    except BadTime:
        return 0
