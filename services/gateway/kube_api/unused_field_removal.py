"""Fields of an object that events record: those that some decision of this system reads. Other fields change without an
event.

Dropped from all objects: managedFields, resourceVersion, generation, and annotations of domains that no scheduler reads
(`kubectl.kubernetes.io/last-applied-configuration` above all). From nodes: heartbeats. From pods: environment,
commands, probes and their times, container statuses but for states, restarts and resizes, and volumes that restrict no
placement. The token volume has a random name in each
pod; without it the pods of one template have equal specs, apart from `nodeName`.

Most of this follows from the types of decoding.py: a field that they do not name is not decoded.
"""

from typing import Any, NamedTuple

import msgspec

from services.gateway.kube_api.decoding import ApiMetadata, ApiNode, ApiNodeMetric, ApiObject, ApiPod, KeptObject
from services.gateway.kube_api.resources import Resource
from shared.kube.kept_annotations import keeps
from shared.kube.kept_pod_status import kept_status
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Container, Pod, PodSpec

_DROPPED_METADATA = ("managedFields", "resourceVersion", "generation", "selfLink")
_NAMING = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class ObservedObject(NamedTuple):
    """An object as a list, a watch or a response delivered it.

    Attributes:
        version: its resourceVersion, on which a write can be conditional.
        object: the kept fields.
    """

    key: str
    uid: str
    version: str
    object: KeptObject


def keep_fields(resource: Resource, found: ApiObject) -> ObservedObject:
    """Returns the object with only the kept fields."""
    if isinstance(found, ApiPod):
        pod = Pod(
            metadata=_metadata(found.metadata), spec=_pod_spec(found.spec), status=kept_status(found.spec, found.status)
        )
        return ObservedObject(pod.metadata.key, pod.metadata.uid, found.metadata.resource_version, pod)
    if isinstance(found, ApiNode):
        node = Node(metadata=_metadata(found.metadata), spec=found.spec, status=found.status)
        return ObservedObject(node.metadata.name, node.metadata.uid, found.metadata.resource_version, node)
    if isinstance(found, ApiNodeMetric):
        metric = NodeMetric(metadata=_metadata(found.metadata), spec=found.spec, status=found.status)
        return ObservedObject(metric.metadata.name, metric.metadata.uid, found.metadata.resource_version, metric)
    return _plain(resource, found)


def _metadata(found: ApiMetadata) -> Metadata:
    annotations = found.annotations
    if annotations:
        annotations = {name: value for name, value in annotations.items() if keeps(name)} or None
    return Metadata(
        name=found.name,
        namespace=found.namespace,
        uid=found.uid,
        labels=found.labels or None,
        annotations=annotations,
        owner_references=found.owner_references,
        creation_timestamp=found.creation_timestamp,
        deletion_timestamp=found.deletion_timestamp,
    )


def _pod_spec(spec: PodSpec) -> PodSpec:
    changes: dict[str, Any] = {}
    if spec.volumes:
        changes["volumes"] = tuple(volume for volume in spec.volumes if volume.restricts())
        changes["local_storage"] = any(volume.is_local() for volume in spec.volumes)
    if any(container.ports for container in spec.containers):
        changes["containers"] = tuple(map(_container, spec.containers))
    if any(container.ports for container in spec.init_containers):
        changes["init_containers"] = tuple(map(_container, spec.init_containers))
    return msgspec.structs.replace(spec, **changes) if changes else spec


def _container(container: Container) -> Container:
    return msgspec.structs.replace(container, ports=tuple(port for port in container.ports if port.host_port))


def _plain(resource: Resource, found: dict[str, Any]) -> ObservedObject:
    """Returns an untyped object without dropped metadata; items of a list get the `apiVersion` and `kind` they lack."""
    if resource.keep:
        found = _kept(found, resource.keep)
    metadata = {name: value for name, value in found["metadata"].items() if name not in _DROPPED_METADATA}
    if _LAST_APPLIED in (annotations := metadata.get("annotations", {})):
        kept = {name: value for name, value in annotations.items() if name != _LAST_APPLIED}
        metadata = {name: value for name, value in metadata.items() if name != "annotations"}
        if kept:
            metadata["annotations"] = kept
    # Sorted, because lists, watches and patches order the fields differently, and the digest depends on the order.
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    body = head | {name: found[name] for name in sorted(found) if name not in head}
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    key = f"{namespace}/{name}" if namespace else name
    return ObservedObject(key, metadata.get("uid", ""), found["metadata"].get("resourceVersion", ""), body)


def _kept(found: dict[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    """Returns the fields of an object that its resource keeps, and those that identify it."""
    metadata = {name: value for name, value in found["metadata"].items() if name in _NAMING}
    kept: dict[str, Any] = {"metadata": metadata}
    for path in paths:
        *above, last = path.split(".")
        source, target = found, kept
        for name in above:
            source = source.get(name) or {}
        if source.get(last) is None:
            continue
        for name in above:
            target = target.setdefault(name, {})
        target[last] = source[last]
    return kept
