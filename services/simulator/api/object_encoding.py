"""Objects between their JSON, the form in which the simulator keeps them, and the events that tell of them."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from services.simulator.api.api_errors import bad_request
from services.simulator.api.field_filter import trimmed
from services.simulator.api.resource_kinds import NODE_METRICS, NODES, PODS, Resource
from services.simulator.state import KINDS, Object
from shared.events import Event
from shared.events.cluster import (
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Pod

QUANTITIES = frozenset({"requests", "limits", "capacity", "allocatable", "resources", "overhead"})
"""Fields that hold quantities, which may be written as numbers."""


def decoded(resource: Resource, data: bytes | msgspec.Raw) -> Object:
    """An object from its JSON.

    Raises:
        Refused: 400, naming the path of the field that does not fit.
    """
    kind = KINDS.get(resource.name)
    try:
        whole: Object = msgspec.json.decode(data, type=kind) if kind else msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.ValidationError:
        return typed(resource, msgspec.json.decode(data))  # a quantity may be a number
    except msgspec.DecodeError as error:
        raise bad_request(f"{resource.kind}: {error}") from error
    return trimmed(whole)


def typed(resource: Resource, body: dict[str, Any]) -> Object:
    """An object from plain JSON values.

    Raises:
        Refused: 400, naming the path of the field that does not fit.
    """
    kind = KINDS.get(resource.name)
    try:
        whole: Object = msgspec.convert(_with_texts(body), kind) if kind else msgspec.convert(body, dict[str, Any])
    except msgspec.ValidationError as error:
        raise bad_request(f"{resource.kind} in {resource.api_version} cannot be handled: {error}") from error
    return trimmed(whole)


def merged(old: object, patch: object) -> Any:
    """A JSON merge patch (RFC 7396): objects merge, null removes, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(old) if isinstance(old, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def name_of(held: Object) -> tuple[str, str]:
    """Name and namespace as the object states them."""
    if not isinstance(held, dict):
        return held.metadata.name, held.metadata.namespace
    metadata = held.get("metadata")
    if not isinstance(metadata, dict):
        raise bad_request(f"metadata: Required value; found {metadata!r}")
    return str(metadata.get("name") or ""), str(metadata.get("namespace") or "")


def fresh(metadata: Metadata, namespace: str, uid: str, at: str) -> Metadata:
    """The metadata of a new object."""
    return replace(metadata, namespace=namespace, uid=uid, creation_timestamp=at, deletion_timestamp=None)


def fresh_body(body: dict[str, Any], resource: Resource, namespace: str, uid: str, at: str) -> dict[str, Any]:
    """A new object that is kept as plain JSON."""
    metadata = (
        body["metadata"] | {"uid": uid, "creationTimestamp": at} | ({"namespace": namespace} if namespace else {})
    )
    metadata.pop("deletionTimestamp", None)
    rest = {
        name: value for name, value in body.items() if name != "metadata" and not (resource.status and name == "status")
    }
    return rest | {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def as_json(resource: Resource, held: Object) -> dict[str, Any]:
    """The object as the API shows it, with apiVersion and kind."""
    plain: dict[str, Any] = msgspec.to_builtins(held)
    return {"apiVersion": resource.api_version, "kind": resource.kind} | plain


def observed(resource: str, key: str, new: Object) -> Event:
    """The event that tells of the object as it is now."""
    match new:
        case Pod():
            return PodObserved(pod=key, pod_uid=new.metadata.uid, object=new)
        case Node():
            return NodeObserved(node=key, object=new)
        case NodeMetric():
            return NodeMetricObserved(node=key, object=new)
    return ObjectObserved(resource=resource, name=key, uid=str(new["metadata"].get("uid", "")), object=new)


def gone(resource: str, key: str, uid: str) -> Event:
    """The event that tells that the object is no more."""
    if resource == PODS.name:
        return PodDeleted(pod=key, pod_uid=uid)
    if resource == NODES.name:
        return NodeDeleted(node=key, node_uid=uid)
    if resource == NODE_METRICS.name:
        return NodeMetricDeleted(node=key)
    return ObjectDeleted(resource=resource, name=key, uid=uid)


def _with_texts(value: object, *, quantities: bool = False) -> Any:
    """The same JSON with every quantity a text."""
    if isinstance(value, dict):
        return {name: _with_texts(inner, quantities=name in QUANTITIES or quantities) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_texts(inner) for inner in value]
    if quantities and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value
