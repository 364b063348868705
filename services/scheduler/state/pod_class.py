"""What a pod asks for: the part of it that every replica of a workload has in common, read once and shared.

Thousands of pods come from a few templates. Equal pods share one `PodClass`, so their requests are parsed once, their
nodes are judged once a cycle, and a pod costs the state a few hundred bytes. What differs between replicas (name, uid, node,
times) stays with the pod. Namespace and labels are part of the class, because selectors read them; annotations count only
where this scheduler reads them.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from shared.domain.deprecated_resources import with_todays_names
from shared.domain.pod_requests import (
    INFEASIBLE,
    RESIZE_PENDING,
    Asked,
    read_asked,
    whole,
)
from shared.domain.qos import kubernetes_qos
from shared.kube.meta import Metadata, OwnerReference
from shared.kube.pod import ClaimSource, Pod, PodCondition, PodSpec, PodStatus, Volume
from shared.kube.quantity import BadQuantity

SCHEDULER_NAME = "scheduling.koordinator.sh/scheduler-name"
"""Label that outranks `spec.schedulerName`. Source: spec/scheduler-core.md 1.2."""

HINTS = ("internal.scheduling.koordinator.sh/scheduling-hint", "scheduling.koordinator.sh/scheduling-hint")
"""Annotations by which someone else has decided already; the first one wins."""

ANNOTATIONS = (
    "scheduling.koordinator.sh/resource-spec",
    "scheduling.koordinator.sh/numa-topology-spec",
    *HINTS,
    "scheduling.koordinator.sh/load-estimated-scaling-factors",
    "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled",
    "scheduling.koordinator.sh/load-estimated-seconds-after-initialized",
    "scheduling.koordinator.sh/reserve-pod",
)
"""Annotations that a decision depends on."""

ALLOCATION_ANNOTATIONS = ("scheduling.koordinator.sh/resource-status",)
"""Annotations that say what one pod has of its node: they differ between replicas and stay with the pod."""

_READ = ANNOTATIONS + ALLOCATION_ANNOTATIONS

LARGEST_AMOUNT = 1 << 56
"""Amounts are cut to this (64 PiB of memory), so that sums and percentages stay within int64."""

HostPort = tuple[str, str, int]
"""(ip, protocol, port); the ip 0.0.0.0 stands for every address."""

SPREADING_OWNERS = ("ReplicationController", "ReplicaSet", "StatefulSet")
"""Kinds of controllers whose selector spreads their pods by default."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_parts = attrgetter("metadata", "spec", "status")


class PodClass:
    """One class of equal pods.

    Attributes:
        key: canonical bytes of what makes the class; equal pods have equal keys.
        pod: a pod of the class without name, node and times.
        asked: all that it asks for and may use, as it was read; None when it cannot be.
        request: resource name -> amount; cpu in milli-cores, memory in bytes, the rest in whole units.
        nonzero_request: the same as scoring sees an incoming pod: each container without cpu or memory counts 100m or 200Mi.
        nonzero_assigned: the same as scoring sees it once it is on a node.
        namespace, labels: of all its pods.
        priority: `spec.priority`, 0 when absent.
        scheduler: name of the profile the pod asks for.
        ports: host ports it takes.
        fault: why the pod cannot be read (one of its quantities is none); such a pod is never placed.
        variant_key: see `variant_key`; None until it is asked for.
        cached: what plugins have worked out for this class, by plugin; nothing that a decision could not work out anew.
    """

    __slots__ = (
        "asked",
        "cached",
        "fault",
        "gated",
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
        "scheduler",
        "variant_key",
    )  # fmt: skip

    def __init__(self, key: bytes, pod: Pod) -> None:
        self.key = key
        self.pod = pod
        self.pods = 0  # how many pods of the state are of this class; it is dropped with the last
        self.cached: dict[object, Any] = {}
        self.variant_key: bytes | None = None
        self.namespace = pod.metadata.namespace
        self.labels: dict[str, str] = pod.metadata.labels or {}
        self.priority = pod.spec.priority or 0
        self.scheduler = self.labels.get(SCHEDULER_NAME) or pod.spec.scheduler_name
        self.gated = bool(pod.spec.scheduling_gates)
        self.ports = host_ports(pod)
        self.fault = ""
        self.asked: Asked | None = None
        self.request: dict[str, int] = {}
        self.nonzero_request: dict[str, int] = {}
        self.nonzero_assigned: dict[str, int] = {}
        try:
            self.asked = asked = read_asked(pod)
            self.request = _bounded(whole(asked.requests))
            self.nonzero_request = self.request if asked.scored is asked.requests else _bounded(whole(asked.scored))
            self.nonzero_assigned = self.nonzero_request if asked.held is asked.scored else _bounded(whole(asked.held))
        except BadQuantity as error:
            self.fault = str(error)

    def __repr__(self) -> str:
        return f"PodClass({self.scheduler}, priority={self.priority}, {self.request})"


def variant_key(pod_class: PodClass) -> bytes:
    """Canonical bytes of what a class shares with those that differ from it in the amounts they ask for alone, not in the resources."""
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
            )
        )
    return pod_class.variant_key


def common_part(pod: Pod) -> Pod:
    """The pod without what differs between replicas: what `PodClass` is made from. Applied twice it changes nothing."""
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
    """Canonical bytes of the common part, without making it: equal for equal pods, whatever their names and nodes."""
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


def has_same_marks(one: Pod, other: Pod) -> bool:
    """Compares two observations of a pod by the labels and annotations that make its class."""
    mine, others = one.metadata, other.metadata
    if (mine.labels or None) != (others.labels or None):
        return False
    return mine.annotations == others.annotations or _notes(mine.annotations) == _notes(others.annotations)


def has_same_spec(one: Pod, other: Pod) -> bool:
    """Compares two observations of a pod by the spec that makes its class; either may be a `common_part`."""
    return _spec(one.metadata, one.spec) == _spec(other.metadata, other.spec)


def allocation_annotations(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    """What annotations say a pod has of its node; None when they do not."""
    return _chosen(annotations, ALLOCATION_ANNOTATIONS)


def _spec(metadata: Metadata, spec: PodSpec) -> PodSpec:
    """The spec without its node, with the claims that are made for the pod by their names (they are its own), resources by today's."""
    if spec.node_name:
        spec = replace(spec, node_name="")
    if any(volume.ephemeral is not None for volume in spec.volumes):
        spec = replace(spec, volumes=tuple(_claimed(metadata.name, volume) for volume in spec.volumes))
    return with_todays_names(spec)


def _claimed(pod: str, volume: Volume) -> Volume:
    if volume.ephemeral is None:
        return volume
    return Volume(name=volume.name, persistent_volume_claim=ClaimSource(claim_name=f"{pod}-{volume.name}"))


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports of the containers and sidecars of a pod, each once, in order."""
    containers = (*pod.spec.containers, *(c for c in pod.spec.init_containers if c.restart_policy == "Always"))
    ports = {
        (port.host_ip or "0.0.0.0", port.protocol, port.host_port): None  # noqa: S104 (what Kubernetes calls every address)
        for container in containers
        for port in container.ports
        if port.host_port > 0
    }
    return tuple(sorted(ports))


def _owners(metadata: Metadata) -> tuple[OwnerReference, ...]:
    """What a decision reads of the owners: whether one is a DaemonSet, and which workload's selector spreads the pod."""
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
    """The condition by which a node says that it will never grant a resize, without its time and message."""
    return tuple(
        PodCondition(type=condition.type, status=condition.status, reason=condition.reason)
        for condition in status.conditions
        if condition.type == RESIZE_PENDING and condition.reason == INFEASIBLE
    )


def _notes(annotations: Mapping[str, str] | None) -> dict[str, str] | None:
    """Annotations that make the class; with a hint, what the pod is to have belongs to them."""
    if not annotations or annotations.keys().isdisjoint(_READ):
        return None
    hinted = any(hint in annotations for hint in HINTS)
    return _chosen(annotations, ANNOTATIONS + ALLOCATION_ANNOTATIONS if hinted else ANNOTATIONS)


def _chosen(values: Mapping[str, str] | None, names: tuple[str, ...]) -> dict[str, str] | None:
    if not values:
        return None
    return {name: values[name] for name in names if name in values} or None


def _bounded(amounts: dict[str, int]) -> dict[str, int]:
    return {name: min(max(size, 0), LARGEST_AMOUNT) for name, size in amounts.items()}
