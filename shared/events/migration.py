"""Events of the `descheduling` context about the moves of pods by PodMigrationJobs, and the drain of nodes."""

from typing import ClassVar

import msgspec

from shared.events.base import Event


class MigrationArbitrated(Event, frozen=True, tag="koord.descheduling.MigrationArbitrated.v1"):
    """The arbitrator let a job begin, within the limits of its node, namespace and workload.

    Attributes:
        pod: of the job, `namespace/name`.
        gang: that its pod leaves as a unit with others; empty where it moves alone.
        together: job -> uid, of all jobs of that unit, this one included; they are let begin in one append.
        destination: the node that the scheduler found for its pod, in one transaction with the others of the unit;
            empty for that of its case.
        case: for a waiting unit, whose victims leave as a unit; empty for any other job.
    """

    KEY: ClassVar[str] = "job"

    job: str
    job_uid: str
    pod: str
    gang: str = ""
    together: dict[str, str] = msgspec.field(default_factory=dict)
    destination: str = ""
    case: str = ""


class MigrationEvictionDecided(Event, frozen=True, tag="koord.descheduling.MigrationEvictionDecided.v1"):
    """A job has its pod evicted; the intent with the effect follows in the same append.

    Attributes:
        node: that the pod leaves.
        destination: node of the Reservation that is held for its successor; empty for a job that evicts directly.
        controller: uid of the pod's controller; empty without one.
        method: Eviction, Delete or SoftEviction.
        reason: of the job.
    """

    KEY: ClassVar[str] = "pod"

    job: str
    job_uid: str
    pod: str
    pod_uid: str
    node: str
    destination: str
    controller: str
    method: str
    reason: str


class MigrationEnded(Event, frozen=True, tag="koord.descheduling.MigrationEnded.v1"):
    """A job is over, or its object is gone; it counts for no limit any more.

    Attributes:
        phase: Succeeded, Failed or Aborted; empty where the object is gone.
        reason: one word, as in the status.
        message: for people.
        drain: node of the drain that the job belongs to, while that goes on; empty for none.
        pod, pod_uid: of the job; empty where its object is gone.
        evicted_only: it succeeded with the eviction: it awaited no successor (mode EvictDirectly).
    """

    KEY: ClassVar[str] = "job"

    job: str
    job_uid: str
    phase: str
    reason: str = ""
    message: str = ""
    drain: str = ""
    pod_uid: str = ""
    pod: str = ""
    evicted_only: bool = False


class DrainRequested(Event, frozen=True, tag="koord.descheduling.DrainRequested.v1"):
    """An operator wants a node without pods that could run elsewhere (`koord drain`).

    Attributes:
        by: the operator.
    """

    KEY: ClassVar[str] = "node"

    node: str
    by: str
    reason: str = ""


class DrainEnded(Event, frozen=True, tag="koord.descheduling.DrainEnded.v1"):
    """A drain is over: no pod is left that may move, or an operator ended it. A node that it cordoned stays cordoned.

    Attributes:
        moved: jobs of the drain that saw the successor of their pod bound.
        remaining: pod -> why it stays.
        by: the operator that ended it early; empty where it is complete.
        evicted: jobs of the drain that evicted their pod and awaited no successor.
        moving: pods whose jobs began before it was ended early, and go on.
        not_cordoned: it was ended early while the node was not cordoned; a cordon that was not written is withdrawn.
    """

    KEY: ClassVar[str] = "node"

    node: str
    moved: int
    remaining: dict[str, str]
    by: str = ""
    evicted: int = 0
    moving: tuple[str, ...] = ()
    not_cordoned: bool = False


MIGRATION_EVENTS: tuple[type[Event], ...] = (
    MigrationArbitrated,
    MigrationEvictionDecided,
    MigrationEnded,
    DrainRequested,
    DrainEnded,
)
"""All of them."""
