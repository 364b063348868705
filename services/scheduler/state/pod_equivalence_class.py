"""Equivalence classes of pods: the part of a pod that all replicas of a workload share, read once.

Thousands of pods are created from a few templates. Equal pods share one `PodClass`, so their requests are parsed once,
nodes are evaluated for them once a cycle, and a pod takes a few hundred bytes of State. What differs between replicas
(name, uid, node, times) is in the pod's own record. Namespace and labels belong to the class, because selectors read
them; annotations belong to it only where the scheduler reads them.
"""

from collections.abc import Mapping
from copy import copy
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from shared.domain import gang
from shared.domain.deprecated_resources import with_current_names
from shared.domain.misspelt_settings import misspelt_names
from shared.domain.network_topology import SELECTOR
from shared.domain.operating_mode_pod import is_operating
from shared.domain.pod_annotations import ALLOCATE_HINT, JOINT_ALLOCATE, NUMA_SPEC, PARTITION_SPEC, RESOURCE_SPEC
from shared.domain.pod_requests import (
    INFEASIBLE,
    RESIZE_PENDING,
    PodAmounts,
    read_pod_amounts,
    whole,
)
from shared.domain.priority import sub_priority
from shared.domain.qos import kubernetes_qos
from shared.domain.reservation import PRE_ALLOCATABLE_PRIORITY, PRE_ALLOCATION, RESERVATION_PLACEMENT
from shared.domain.reservation_owners import Identity
from shared.kube.meta import Metadata, OwnerReference
from shared.kube.pod import ClaimSource, Pod, PodCondition, PodSpec, PodStatus, Volume
from shared.kube.quantity import BadQuantity
from shared.kube.system_annotations import DEVICE_ALLOCATED, RESERVATION_ALLOCATED, RESOURCE_STATUS

SCHEDULER_NAME = "scheduling.koordinator.sh/scheduler-name"
"""Label that takes precedence over `spec.schedulerName`. Source: spec/scheduler-core.md 1.2."""

HINTS = ("internal.scheduling.koordinator.sh/scheduling-hint", "scheduling.koordinator.sh/scheduling-hint")
"""Annotations with the decision of another scheduler; the first one takes precedence."""

ANNOTATIONS = (
    RESOURCE_SPEC,
    NUMA_SPEC,
    *HINTS,
    "scheduling.koordinator.sh/load-estimated-scaling-factors",
    "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled",
    "scheduling.koordinator.sh/load-estimated-seconds-after-initialized",
    "scheduling.koordinator.sh/reserve-pod",
    "scheduling.koordinator.sh/reservation-affinity",
    "scheduling.koordinator.sh/exact-match-reservation",
    RESERVATION_PLACEMENT,
    PRE_ALLOCATION,
    PRE_ALLOCATABLE_PRIORITY,
    ALLOCATE_HINT,
    JOINT_ALLOCATE,
    PARTITION_SPEC,
    *gang.ANNOTATIONS,
    SELECTOR,
)
"""Annotations that a decision depends on."""

ALLOCATION_ANNOTATIONS = (RESOURCE_STATUS, DEVICE_ALLOCATED, RESERVATION_ALLOCATED)
"""Annotations with the allocation of one pod on its node.

They differ between replicas, so they are in the pod's own record.
"""

_READ = ANNOTATIONS + ALLOCATION_ANNOTATIONS

LARGEST_AMOUNT = 1 << 56
"""Upper bound of an amount (64 PiB of memory), so that sums and percentages stay within int64."""

HostPort = tuple[str, str, int]
"""(ip, protocol, port); the ip 0.0.0.0 stands for every address."""

SPREADING_OWNERS = ("ReplicationController", "ReplicaSet", "StatefulSet")
"""Kinds of controllers whose selector spreads their pods by default."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_parts = attrgetter("metadata", "spec", "status")


class PodClass:
    """One class of equal pods.

    Attributes:
        key: canonical bytes of the class; equal pods have equal keys.
        pod: a pod of the class without name, node and times.
        amounts: all requests and limits, as parsed; None when a quantity is invalid.
        request: resource name -> amount; cpu in milli-cores, memory in bytes, the rest in whole units.
        nonzero_request: the same for scores of a pod to be placed: each container without cpu or memory counts 100m or
            200Mi.
        nonzero_assigned: the same for a pod that is assigned to a node.
        namespace, labels: of all its pods.
        priority: `spec.priority`, 0 when absent.
        sub_priority: see `shared.domain.priority.sub_priority`.
        scheduler: name of the profile that the pod requests.
        ports: host ports that it uses.
        reserves: its pods stand for Reservations.
        holds_capacity: so do they, or they are pods in operating mode `Reservation`.
        fault: the error of a pod that cannot be read, as one with an invalid quantity; such a pod is never placed.
        variant_key: result of `variant_key`; None until it is first needed.
        identity: the part of its pods' identity that a Reservation names as its owner; pods that differ in it are of
            different classes.
        cached: results that plugins computed for this class, by plugin; each can be computed anew at any time.
    """

    __slots__ = (
        "amounts",
        "cached",
        "fault",
        "gated",
        "holds_capacity",
        "identity",
        "key",
        "labels",
        "namespace",
        "nonzero_assigned",
        "nonzero_request",
        "pod",
        "pods",
        "ports",
        "priority",
        "request",
        "reserves",
        "scheduler",
        "sub_priority",
        "variant_key",
    )  # fmt: skip

    def __init__(self, key: bytes, pod: Pod, identity: Identity | None = None) -> None:
        self.key = identified_key(key, identity)
        self.pod = pod
        self.identity = identity
        self.pods = 0  # how many pods of the state are of this class; it is dropped with the last
        self.cached: dict[object, Any] = {}
        self.variant_key: bytes | None = None
        self.namespace = pod.metadata.namespace
        self.labels: dict[str, str] = pod.metadata.labels or {}
        self.priority = pod.spec.priority or 0
        self.sub_priority = sub_priority(self.labels)
        self.scheduler = self.labels.get(SCHEDULER_NAME) or pod.spec.scheduler_name
        self.gated = bool(pod.spec.scheduling_gates)
        self.ports = host_ports(pod)
        self.reserves = RESERVATION_PLACEMENT in (pod.metadata.annotations or ())
        self.holds_capacity = self.reserves or is_operating(self.labels)
        self.fault = ""
        self.amounts: PodAmounts | None = None
        self.request: dict[str, int] = {}
        self.nonzero_request: dict[str, int] = {}
        self.nonzero_assigned: dict[str, int] = {}
        try:
            self.amounts = amounts = read_pod_amounts(pod)
            self.request = _bounded(whole(amounts.requests))
            self.nonzero_request = (
                self.request if amounts.scored is amounts.requests else _bounded(whole(amounts.scored))
            )
            self.nonzero_assigned = (
                self.nonzero_request if amounts.held is amounts.scored else _bounded(whole(amounts.held))
            )
        except BadQuantity as error:
            self.fault = str(error)

    def __repr__(self) -> str:
        return f"PodClass({self.scheduler}, priority={self.priority}, {self.request})"


def remaining_class(pod_class: PodClass, request: Mapping[str, int], nonzero: Mapping[str, int]) -> PodClass:
    """Returns the class with other amounts: that of a Reservation of which pods use a part."""
    key = ("remaining", *sorted(request.items()), *sorted(nonzero.items()))
    made: PodClass | None = pod_class.cached.get(key)
    if made is None:
        made = pod_class.cached[key] = copy(pod_class)
        made.cached, made.variant_key = {}, None
        made.request, made.nonzero_request, made.nonzero_assigned = dict(request), dict(nonzero), dict(nonzero)
    return made


def variant_key(pod_class: PodClass) -> bytes:
    """Returns canonical bytes that are equal for request variants: classes that differ only in amounts, not in which
    resources.
    """
    if pod_class.variant_key is None:
        pod, spec = pod_class.pod, pod_class.pod.spec
        containers = tuple(container.image for container in (*spec.init_containers, *spec.containers))
        pod_class.variant_key = _encoder.encode(
            (
                replace(spec, containers=(), init_containers=(), overhead=None, resources=None),
                pod.metadata,
                kubernetes_qos(pod),
                containers,
                len(spec.init_containers),
                pod_class.ports,
                [name for name, size in pod_class.request.items() if size],
                pod_class.identity,
            )
        )
    return pod_class.variant_key


def common_part(pod: Pod) -> Pod:
    """Returns the pod without the parts that differ between replicas, as `PodClass` takes it.

    A second application changes nothing.
    """
    metadata, spec, status = _parts(pod)
    return Pod(
        metadata=Metadata(
            namespace=metadata.namespace,
            labels=metadata.labels or None,
            annotations=_notes(metadata.annotations),
            owner_references=_owners(metadata),
        ),
        spec=_spec(metadata, spec),
        status=PodStatus(
            qos_class=status.qos_class,
            container_statuses=status.container_statuses,
            init_container_statuses=status.init_container_statuses,
            conditions=_infeasible(status) if status.container_statuses or status.init_container_statuses else (),
        ),
    )


def class_key(pod: Pod) -> bytes:
    """Returns the canonical bytes of the common part without creating it: equal for equal pods, whatever their names
    and nodes.
    """
    metadata, spec, status = _parts(pod)
    return _encoder.encode(
        (
            _spec(metadata, spec),
            metadata.namespace,
            metadata.labels or None,
            _notes(metadata.annotations),
            _owners(metadata),
            status.qos_class,
            status.container_statuses,
            status.init_container_statuses,
            bool(status.container_statuses or status.init_container_statuses) and bool(_infeasible(status)),
        )
    )


def identified_key(key: bytes, identity: Identity | None) -> bytes:
    """Returns the key of a class of which Reservations name the pods; `key` without an identity."""
    return key if identity is None else key + _encoder.encode(identity)


def has_same_marks(one: Pod, other: Pod) -> bool:
    """Compares two observations of a pod by the labels and annotations of its class."""
    mine, others = one.metadata, other.metadata
    if (mine.labels or None) != (others.labels or None):
        return False
    return mine.annotations == others.annotations or _notes(mine.annotations) == _notes(others.annotations)


def has_same_spec(one: Pod, other: Pod) -> bool:
    """Compares two observations of a pod by the spec of its class; either may be a `common_part`."""
    return _spec(one.metadata, one.spec) == _spec(other.metadata, other.spec)


def allocation_annotations(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    """Returns the annotations that record a pod's allocation; None without any."""
    return _chosen(annotations, ALLOCATION_ANNOTATIONS)


def _spec(metadata: Metadata, spec: PodSpec) -> PodSpec:
    """Returns the spec without its node, with resources by their current names.

    A claim that is created for the pod (an ephemeral volume) is written by its name, which is the pod's own.
    """
    if spec.node_name:
        spec = replace(spec, node_name="")
    if spec.volumes and any(volume.ephemeral is not None for volume in spec.volumes):
        spec = replace(spec, volumes=tuple(_claimed(metadata.name, volume) for volume in spec.volumes))
    return with_current_names(spec)


def _claimed(pod: str, volume: Volume) -> Volume:
    if volume.ephemeral is None:
        return volume
    return Volume(name=volume.name, persistent_volume_claim=ClaimSource(claim_name=f"{pod}-{volume.name}"))


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Returns the host ports of the containers and sidecars of a pod, each once, in order."""
    containers = (*pod.spec.containers, *(c for c in pod.spec.init_containers if c.restart_policy == "Always"))
    ports = {
        (port.host_ip or "0.0.0.0", port.protocol, port.host_port): None  # noqa: S104 (what Kubernetes calls every address)
        for container in containers
        for port in container.ports
        if port.host_port > 0
    }
    return tuple(sorted(ports))


def _owners(metadata: Metadata) -> tuple[OwnerReference, ...]:
    """Keeps of the owners what a decision reads: a DaemonSet, and the workload whose selector spreads the pod."""
    owners = metadata.owner_references
    if not owners:
        return ()
    kept = [
        OwnerReference(kind=owner.kind, name=owner.name, controller=True)
        for owner in owners
        if owner.controller and owner.kind in SPREADING_OWNERS
    ]
    if any(owner.kind == "DaemonSet" for owner in owners):
        kept.append(OwnerReference(kind="DaemonSet"))
    return tuple(kept)


def _infeasible(status: PodStatus) -> tuple[PodCondition, ...]:
    """Returns the condition of a resize that its node will never grant, without time and message."""
    return tuple(
        PodCondition(type=condition.type, status=condition.status, reason=condition.reason)
        for condition in status.conditions
        if condition.type == RESIZE_PENDING and condition.reason == INFEASIBLE
    )


def _notes(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    """Returns the annotations of the class. The names of misspelt ones belong to it, since a decision names them; their
    values do not: these may differ between replicas.

    A scheduling hint names the allocation to use, so with a hint allocations belong to them.
    """
    if not annotations:
        return None
    misspelt = dict.fromkeys(misspelt_names(annotations), "")
    if annotations.keys().isdisjoint(_READ):
        return misspelt or None
    hinted = any(hint in annotations for hint in HINTS)
    chosen = _chosen(annotations, ANNOTATIONS + ALLOCATION_ANNOTATIONS if hinted else ANNOTATIONS)
    return {**misspelt, **(chosen or {})} or None


def _chosen(values: Mapping[str, str] | None, names: tuple[str, ...]) -> dict[str, str] | None:
    if not values:
        return None
    return {name: values[name] for name in names if name in values} or None


def _bounded(amounts: dict[str, int]) -> dict[str, int]:
    # By name: a manifest's order is not in a snapshot, and decisions must not depend on where their State was folded from.
    return {name: min(max(size, 0), LARGEST_AMOUNT) for name, size in sorted(amounts.items())}
