"""Conversion of objects between their JSON, the form that the simulator stores, and their events."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from services.simulator.api.api_errors import bad_request
from services.simulator.api.resource_kinds import NODE_METRICS, NODES, PODS, Resource
from services.simulator.api.unused_field_removal import without_unused_fields
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
from shared.kube.json_text import read_json
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Pod

QUANTITIES = frozenset({"requests", "limits", "capacity", "allocatable", "resources", "overhead"})
"""Fields that hold quantities, which a client may write as numbers."""


def decoded(resource: Resource, data: bytes | msgspec.Raw) -> Object:
    """Decodes an object.

    Raises:
        ApiError: 400, naming the path of the field that does not fit.
    """
    kind = KINDS.get(resource.name)
    try:
        whole: Object = read_json(bytes(data), kind or dict[str, Any])
    except msgspec.ValidationError:
        return typed(resource, read_json(bytes(data), dict[str, Any]))  # a quantity may be a number
    except msgspec.DecodeError as error:
        raise bad_request(f"{resource.kind}: {error}") from error
    return without_unused_fields(whole)


def typed(resource: Resource, body: dict[str, Any]) -> Object:
    """Converts an object from plain JSON values.

    Raises:
        ApiError: 400, naming the path of the field that does not fit.
    """
    kind = KINDS.get(resource.name)
    try:
        whole: Object = msgspec.convert(_with_texts(body), kind) if kind else msgspec.convert(body, dict[str, Any])
    except msgspec.ValidationError as error:
        raise bad_request(f"{resource.kind} in {resource.api_version} cannot be handled: {error}") from error
    return without_unused_fields(whole)


def merged(old: object, patch: object) -> Any:
    """Applies a JSON merge patch (RFC 7396): objects merge, null removes, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(old) if isinstance(old, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def name_of(stored: Object) -> tuple[str, str]:
    """Returns the name and the namespace in the object's metadata."""
    if not isinstance(stored, dict):
        return stored.metadata.name, stored.metadata.namespace
    metadata = stored.get("metadata")
    if not isinstance(metadata, dict):
        raise bad_request(f"metadata: Required value; found {metadata!r}")
    return str(metadata.get("name") or ""), str(metadata.get("namespace") or "")


def new_metadata(metadata: Metadata, namespace: str, uid: str, at: str) -> Metadata:
    """Returns the metadata of a new object."""
    return replace(metadata, namespace=namespace, uid=uid, creation_timestamp=at, deletion_timestamp=None)


def new_body(body: dict[str, Any], resource: Resource, namespace: str, uid: str, at: str) -> dict[str, Any]:
    """Returns a new object that is stored as plain JSON."""
    metadata = (
        body["metadata"] | {"uid": uid, "creationTimestamp": at} | ({"namespace": namespace} if namespace else {})
    )
    metadata.pop("deletionTimestamp", None)
    other_fields = {
        name: value for name, value in body.items() if name != "metadata" and not (resource.status and name == "status")
    }
    return other_fields | {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def as_json(resource: Resource, stored: Object) -> dict[str, Any]:
    """Returns the object as the API shows it, with apiVersion and kind."""
    plain: dict[str, Any] = msgspec.to_builtins(stored)
    return {"apiVersion": resource.api_version, "kind": resource.kind} | plain


def observation_event(resource: str, key: str, new: Object) -> Event:
    """Returns the event about an object that was created or changed."""
    match new:
        case Pod():
            return PodObserved(pod=key, pod_uid=new.metadata.uid, object=new)
        case Node():
            return NodeObserved(node=key, object=new)
        case NodeMetric():
            return NodeMetricObserved(node=key, object=new)
    return ObjectObserved(resource=resource, name=key, uid=str(new["metadata"].get("uid", "")), object=new)


def deletion_event(resource: str, key: str, uid: str) -> Event:
    """Returns the event about a deleted object."""
    if resource == PODS.name:
        return PodDeleted(pod=key, pod_uid=uid)
    if resource == NODES.name:
        return NodeDeleted(node=key, node_uid=uid)
    if resource == NODE_METRICS.name:
        return NodeMetricDeleted(node=key)
    return ObjectDeleted(resource=resource, name=key, uid=uid)


def _with_texts(value: object, *, quantities: bool = False) -> Any:
    """Returns the same JSON with every quantity as a text."""
    if isinstance(value, dict):
        return {name: _with_texts(inner, quantities=name in QUANTITIES or quantities) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_texts(inner) for inner in value]
    if quantities and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value
