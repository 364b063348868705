"""Events of the `cluster` context: observations of the gateway (or the simulator), and the outcome of each intent.

An outcome's `cause` in the envelope is the intent that it completes.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from shared.events.base import Event
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Pod


class ClusterIdentified(Event, frozen=True, tag="koord.cluster.ClusterIdentified.v1"):
    """The cluster that this log describes. Recorded once: in a new log before any observation, in an older one at the
    next start. The gateway and the simulator refuse to start on the log of another cluster.

    Attributes:
        cluster: UID of the namespace `kube-system`, or `simulated/<id>`.
        log: id of this log, which distinguishes two systems that manage one cluster; empty where the cluster is
            simulated, and in an event of an older release, which the next start of a gateway supplements.
    """

    KEY: ClassVar[str] = "cluster"

    cluster: str
    log: str = ""


class SecondSystemRefused(Event, frozen=True, tag="koord.cluster.SecondSystemRefused.v1"):
    """A system that would write to the cluster was refused, since another live one writes to it. In the logs of both.

    Attributes:
        manager_log, manager: log and replica of the system that manages the cluster.
        refused_log, refused: those of the other.
    """

    KEY: ClassVar[str] = "refused_log"

    manager_log: str
    manager: str
    refused_log: str
    refused: str


class NodeObserved(Event, frozen=True, tag="koord.cluster.NodeObserved.v1"):
    """A node appeared, or a kept field of it changed. Heartbeats change none."""

    KEY: ClassVar[str] = "node"

    node: str
    object: Node


class NodeDeleted(Event, frozen=True, tag="koord.cluster.NodeDeleted.v1"):
    """A node is gone from the API."""

    KEY: ClassVar[str] = "node"

    node: str
    node_uid: str


class PodObserved(Event, frozen=True, tag="koord.cluster.PodObserved.v1"):
    """A pod appeared, or a kept field of it changed."""

    KEY: ClassVar[str] = "pod"

    pod: str
    pod_uid: str
    object: Pod


class PodDeleted(Event, frozen=True, tag="koord.cluster.PodDeleted.v1"):
    """A pod is gone from the API."""

    KEY: ClassVar[str] = "pod"

    pod: str
    pod_uid: str


class NodeMetricObserved(Event, frozen=True, tag="koord.cluster.NodeMetricObserved.v1"):
    """A node's NodeMetric object appeared or changed; its `status.updateTime` is the data's own time."""

    KEY: ClassVar[str] = "node"

    node: str
    object: NodeMetric


class NodeMetricDeleted(Event, frozen=True, tag="koord.cluster.NodeMetricDeleted.v1"):
    """A node's NodeMetric object is gone."""

    KEY: ClassVar[str] = "node"

    node: str


class ObjectObserved(Event, frozen=True, tag="koord.cluster.ObjectObserved.v1"):
    """Another object appeared or changed: a namespace, PriorityClass, ConfigMap or custom resource.

    Attributes:
        resource: plural and group, such as `configmaps` or `elasticquotas.scheduling.sigs.k8s.io`.
        object: the object without managedFields, resourceVersion and generation.
    """

    KEY: ClassVar[str] = "name"

    resource: str
    name: str
    uid: str
    object: dict[str, Any]


class ObjectDeleted(Event, frozen=True, tag="koord.cluster.ObjectDeleted.v1"):
    """Such an object is gone from the API."""

    KEY: ClassVar[str] = "name"

    resource: str
    name: str
    uid: str


class WatchResumed(Event, frozen=True, tag="koord.cluster.WatchResumed.v1"):
    """A watch could not continue at its position; the resource was listed again and compared, so only intermediate
    states are lost.

    Attributes:
        reason: `Expired` (410), or the error of the connection.
    """

    KEY: ClassVar[str] = "resource"

    resource: str
    reason: str


class ShortListFound(Event, frozen=True, tag="koord.cluster.ShortListFound.v1"):
    """A list lacks so many of the nodes, pods or quotas in this log that it is not believed. Effects stop until a later
    list is complete, or an operator confirms it.

    Attributes:
        known: number of objects in this log.
        missing: how many of them the list lacks.
        names: some of those.
    """

    KEY: ClassVar[str] = "resource"

    resource: str
    known: int
    missing: int
    names: tuple[str, ...] = ()


class ShortListConfirmed(Event, frozen=True, tag="koord.cluster.ShortListConfirmed.v1"):
    """An operator confirmed a short list (`koord cluster confirm`): the missing objects are recorded as deleted.

    Attributes:
        known, missing: as in ShortListFound, of the list that the operator saw.
    """

    KEY: ClassVar[str] = "resource"

    resource: str
    known: int
    missing: int


class InitialListCompleted(Event, frozen=True, tag="koord.cluster.InitialListCompleted.v1"):
    """Every followed resource has been listed once since this writer started; from here on `cluster` is complete.

    Attributes:
        objects: how many objects there were.
    """

    KEY: ClassVar[str] = "cluster"

    objects: int
    cluster: str = "cluster"


class AdmissionMissed(Event, frozen=True, tag="koord.cluster.AdmissionMissed.v1"):
    """A pod was created while no webhook responded, and was evaluated when it was observed.

    Attributes:
        profiles: colocation profiles that select it.
        applied: the part of them that was still applied: names of labels and annotations.
        problems: differences from, or rejections by, a working webhook; sentences.
    """

    KEY: ClassVar[str] = "name"

    resource: str
    name: str
    uid: str
    profiles: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class PodBound(Event, frozen=True, tag="koord.cluster.PodBound.v1"):
    """Outcome of PodPlaced: the API server has recorded the binding.

    Attributes:
        allocations: those of the annotations of PodPlaced that only this system may write. What the object has in their
            place may be forged.
    """

    KEY: ClassVar[str] = "pod"

    pod: str
    pod_uid: str
    node: str
    allocations: dict[str, str] = msgspec.field(default_factory=dict)


class BindRejected(Event, frozen=True, tag="koord.cluster.BindRejected.v1"):
    """Outcome of PodPlaced: the binding cannot be made; deciding again may help."""

    KEY: ClassVar[str] = "pod"

    pod: str
    pod_uid: str
    reason: str


class BindFailed(Event, frozen=True, tag="koord.cluster.BindFailed.v1"):
    """Outcome of PodPlaced: the API server did not bind the pod within the deadline, as a read of the pod has shown."""

    KEY: ClassVar[str] = "pod"

    pod: str
    pod_uid: str
    reason: str


class BindSuppressed(Event, frozen=True, tag="koord.cluster.BindSuppressed.v1"):
    """Outcome of PodPlaced in shadow mode: nothing was written."""

    KEY: ClassVar[str] = "pod"

    pod: str
    pod_uid: str


class PodEvicted(Event, frozen=True, tag="koord.cluster.PodEvicted.v1"):
    """Outcome of EvictionRequested: the pod is terminating, or is gone already.

    Attributes:
        node: of the pod; empty if the pod was gone already, which spends no budget, or had none.
        workload: kind and name of its controller, `ReplicaSet/web-6d4`.
        without_node: the pod had no node, or the log no longer has it: its eviction spends all budgets but that of a
            node.
    """

    KEY: ClassVar[str] = "pod"

    pod: str
    pod_uid: str
    node: str = ""
    workload: str = ""
    without_node: bool = False


class EvictionPaused(Event, frozen=True, tag="koord.cluster.EvictionPaused.v1"):
    """An eviction (the cause) waits: it exceeds the budget, or evictions are held. Its outcome follows later.

    Attributes:
        reason: the budget that is spent, or the hold.
    """

    KEY: ClassVar[str] = "pod"

    pod: str
    pod_uid: str
    reason: str


class EvictionsHeld(Event, frozen=True, tag="koord.cluster.EvictionsHeld.v1"):
    """All evictions wait until they are released.

    Attributes:
        by: the operator, or `breaker`.
    """

    KEY: ClassVar[str] = "by"

    by: str
    reason: str


class EvictionsReleased(Event, frozen=True, tag="koord.cluster.EvictionsReleased.v1"):
    """An operator ended a hold. Evictions before it spend no budget any more.

    Attributes:
        by: the operator.
    """

    KEY: ClassVar[str] = "by"

    by: str
    reason: str


class EvictionRejected(Event, frozen=True, tag="koord.cluster.EvictionRejected.v1"):
    """Outcome of EvictionRequested: a disruption budget, or the API server, rejects it."""

    KEY: ClassVar[str] = "pod"

    pod: str
    pod_uid: str
    reason: str


class EvictionFailed(Event, frozen=True, tag="koord.cluster.EvictionFailed.v1"):
    """Outcome of EvictionRequested: the API server did not evict the pod within the deadline, as a read has shown."""

    KEY: ClassVar[str] = "pod"

    pod: str
    pod_uid: str
    reason: str


class EvictionSuppressed(Event, frozen=True, tag="koord.cluster.EvictionSuppressed.v1"):
    """Outcome of EvictionRequested in shadow mode: nothing was written."""

    KEY: ClassVar[str] = "pod"

    pod: str
    pod_uid: str


class DesiredStateApplied(Event, frozen=True, tag="koord.cluster.DesiredStateApplied.v1"):
    """Outcome of a desired state (PodUnschedulable, FieldsDesired, ObjectDesired): the object agrees with it."""

    KEY: ClassVar[str] = "name"

    resource: str
    name: str
    fields: str = ""


class DesiredStateSuperseded(Event, frozen=True, tag="koord.cluster.DesiredStateSuperseded.v1"):
    """Outcome of a desired state: a newer one of the same field group came before it was written, or the object is
    gone.
    """

    KEY: ClassVar[str] = "name"

    resource: str
    name: str
    fields: str = ""


class DesiredStateRejected(Event, frozen=True, tag="koord.cluster.DesiredStateRejected.v1"):
    """Outcome of a desired state: the API server rejects it for good."""

    KEY: ClassVar[str] = "name"

    resource: str
    name: str
    reason: str
    fields: str = ""


class DesiredStateFailed(Event, frozen=True, tag="koord.cluster.DesiredStateFailed.v1"):
    """Outcome of a desired state: the API server did not take it within the deadline. While it is the newest of its
    field group the gateway tries it again, and records the outcome of the try that ends.
    """

    KEY: ClassVar[str] = "name"

    resource: str
    name: str
    reason: str
    fields: str = ""


class DesiredStateSuppressed(Event, frozen=True, tag="koord.cluster.DesiredStateSuppressed.v1"):
    """Outcome of a desired state in shadow mode: nothing was written. A gateway that starts without shadow mode writes
    it.
    """

    KEY: ClassVar[str] = "name"

    resource: str
    name: str
    fields: str = ""


class MissingPermission(Event, frozen=True, tag="koord.cluster.MissingPermission.v1"):
    """Outcome of any intent: the gateway's account lacks a permission.

    Attributes:
        name: the object of the intent.
        rule: the RBAC rule to add, as `verb resource`.
        pod_uid: the pod, when the intent was about one.
    """

    KEY: ClassVar[str] = "name"

    name: str
    rule: str
    pod_uid: str = ""


class IntentRefused(Event, frozen=True, tag="koord.cluster.IntentRefused.v1"):
    """Outcome of any intent that its context may not carry: nothing was written.

    No service acts on it: a service records the intents that it declares, so this one is a fault or a forgery.

    Attributes:
        intent: type of the intent.
        resource, name: the object that the intent is about.
        reason: the declaration that is missing.
        pod_uid: the pod, when the intent was about one.
    """

    KEY: ClassVar[str] = "name"

    intent: str
    resource: str
    name: str
    reason: str
    pod_uid: str = ""


DELETED_BY: Mapping[type[Event], type[Event]] = {
    NodeObserved: NodeDeleted,
    PodObserved: PodDeleted,
    NodeMetricObserved: NodeMetricDeleted,
    ObjectObserved: ObjectDeleted,
}
"""The type that records an object -> the type that records its deletion. Live objects are carried forward before their
event is dropped.
"""

OBSERVATIONS: tuple[type[Event], ...] = (*DELETED_BY, *DELETED_BY.values())
"""Observations of objects."""

OUTCOMES: tuple[type[Event], ...] = (
    PodBound,
    BindRejected,
    BindFailed,
    BindSuppressed,
    PodEvicted,
    EvictionRejected,
    EvictionFailed,
    EvictionSuppressed,
    DesiredStateApplied,
    DesiredStateSuperseded,
    DesiredStateRejected,
    DesiredStateFailed,
    DesiredStateSuppressed,
    MissingPermission,
    IntentRefused,
)
"""Outcomes of intents."""
