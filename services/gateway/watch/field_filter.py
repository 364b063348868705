"""Which part of an object is kept: what some decision of this system reads. Everything else may change without an event.

Dropped from all objects: managedFields, resourceVersion, generation, and annotations of domains that no scheduler reads
(`kubectl.kubernetes.io/last-applied-configuration` above all). From nodes: heartbeats. From pods: environment, commands,
probes and their times, and volumes that restrict no placement. The token volume has another random name in each pod; without it pods
made from one template have equal specs, apart from `nodeName`.

Types do most of it: a field that a kept type does not name is not decoded.
"""

from typing import Any, NamedTuple

import msgspec

from services.gateway.kube_api.api_types import Kept, Wire, WireMetadata, WireNode, WireNodeMetric, WirePod
from services.gateway.kube_api.resources import Resource
from shared.kube.kept_annotations import keeps
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Container, ContainerStatus, Pod, PodSpec, PodStatus, ResourceRequirements

_DROPPED_METADATA = ("managedFields", "resourceVersion", "generation", "selfLink")
_NAMING = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Seen(NamedTuple):
    """An object as it was seen.

    Attributes:
        version: its resourceVersion: what a conditional write names.
        object: the kept part.
    """

    key: str
    uid: str
    version: str
    object: Kept


def see(resource: Resource, wire: Wire) -> Seen:
    """Take off what is not kept."""
    if isinstance(wire, WirePod):
        pod = Pod(
            metadata=_metadata(wire.metadata), spec=_pod_spec(wire.spec), status=_pod_status(wire.spec, wire.status)
        )
        return Seen(pod.metadata.key, pod.metadata.uid, wire.metadata.resource_version, pod)
    if isinstance(wire, WireNode):
        node = Node(metadata=_metadata(wire.metadata), spec=wire.spec, status=wire.status)
        return Seen(node.metadata.name, node.metadata.uid, wire.metadata.resource_version, node)
    if isinstance(wire, WireNodeMetric):
        metric = NodeMetric(metadata=_metadata(wire.metadata), spec=wire.spec, status=wire.status)
        return Seen(metric.metadata.name, metric.metadata.uid, wire.metadata.resource_version, metric)
    return _plain(resource, wire)


def _metadata(wire: WireMetadata) -> Metadata:
    annotations = wire.annotations
    if annotations:
        annotations = {name: value for name, value in annotations.items() if keeps(name)} or None
    return Metadata(
        name=wire.name,
        namespace=wire.namespace,
        uid=wire.uid,
        labels=wire.labels or None,
        annotations=annotations,
        owner_references=wire.owner_references,
        creation_timestamp=wire.creation_timestamp,
        deletion_timestamp=wire.deletion_timestamp,
    )


def _pod_spec(spec: PodSpec) -> PodSpec:
    changes: dict[str, Any] = {}
    if spec.volumes:
        changes["volumes"] = tuple(volume for volume in spec.volumes if volume.restricts())
    if any(container.ports for container in spec.containers):
        changes["containers"] = tuple(map(_container, spec.containers))
    if any(container.ports for container in spec.init_containers):
        changes["init_containers"] = tuple(map(_container, spec.init_containers))
    return msgspec.structs.replace(spec, **changes) if changes else spec


def _pod_status(spec: PodSpec, status: PodStatus) -> PodStatus:
    """Containers' statuses only where they run with something else than their spec asks for."""
    if not status.container_statuses and not status.init_container_statuses:
        return status
    return msgspec.structs.replace(
        status,
        container_statuses=_resizing(spec.containers, status.container_statuses),
        init_container_statuses=_resizing(spec.init_containers, status.init_container_statuses),
    )


def _resizing(containers: tuple[Container, ...], statuses: tuple[ContainerStatus, ...]) -> tuple[ContainerStatus, ...]:
    asked = {c.name: (c.resources.requests if c.resources else None) or {} for c in containers}
    return tuple(
        msgspec.structs.replace(status, resources=ResourceRequirements(requests=status.resources.requests))
        for status in statuses
        if status.resources is not None
        and any(
            has is not None and has != asked.get(status.name)
            for has in (status.resources.requests, status.allocated_resources)
        )
    )


def _container(container: Container) -> Container:
    return msgspec.structs.replace(container, ports=tuple(port for port in container.ports if port.host_port))


def _plain(resource: Resource, wire: dict[str, Any]) -> Seen:
    """Keep a plain object whole but for metadata. Items of a list may lack `apiVersion` and `kind`: they are filled in."""
    if resource.keep:
        wire = _kept(wire, resource.keep)
    metadata = {name: value for name, value in wire["metadata"].items() if name not in _DROPPED_METADATA}
    if _LAST_APPLIED in (annotations := metadata.get("annotations", {})):
        kept = {name: value for name, value in annotations.items() if name != _LAST_APPLIED}
        metadata = {name: value for name, value in metadata.items() if name != "annotations"}
        if kept:
            metadata["annotations"] = kept
    # One order of names, whichever way the object came: the digest of what is kept must not depend on it.
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    body = head | {name: wire[name] for name in sorted(wire) if name not in head}
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    key = f"{namespace}/{name}" if namespace else name
    return Seen(key, metadata.get("uid", ""), wire["metadata"].get("resourceVersion", ""), body)


def _kept(wire: dict[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    """The parts of an object that its resource keeps, and what names it."""
    metadata = {name: value for name, value in wire["metadata"].items() if name in _NAMING}
    kept: dict[str, Any] = {"metadata": metadata}
    for path in paths:
        *above, last = path.split(".")
        source, target = wire, kept
        for name in above:
            source = source.get(name) or {}
        if source.get(last) is None:
            continue
        for name in above:
            target = target.setdefault(name, {})
        target[last] = source[last]
    return kept
