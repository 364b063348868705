"""What a client asks of the simulated API, and what it is answered: JSON of Kubernetes objects on the bus.

    koord.simulator.create    an object, or {"kind": "List", "items": [...]}
    koord.simulator.delete    {"apiVersion", "kind", "metadata": {"namespace", "name", "uid"?}, "gracePeriodSeconds"?}
    koord.simulator.patch     the same with {"patch": {...}, "subresource"?: "status"}, a JSON merge patch
    koord.simulator.get       {"apiVersion", "kind", "metadata": {"namespace", "name"}}
    koord.simulator.list      {"apiVersion", "kind", "namespace"?, "limit"?, "continue"?}

One object is answered with the object, or with a Status that says why not. Create, delete and patch take a List too: it is
carried out item by item, and answered with a List of the names and uids, or a Status, of each.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from services.simulator.api.api_errors import Refused, bad_request, not_found
from services.simulator.api.api_server import Cluster
from services.simulator.api.object_encoding import as_json, decoded, name_of
from services.simulator.api.resource_kinds import Resource, resource_of
from services.simulator.seeded_random import splitmix
from services.simulator.state import Object, SimulatorState, uid_of

LIST_LIMIT = 500
"""Objects in one answer to a list, unless asked for fewer."""

ITEMS = 2_000
"""Objects in one request, at most."""

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class _Name(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generate_name: str = msgspec.field(default="", name="generateName")


class _Head(msgspec.Struct, rename="camel"):
    """What is needed of an item to know what it is about."""

    api_version: str = ""
    kind: str = ""
    metadata: _Name = msgspec.field(default_factory=_Name)
    grace_period_seconds: int | None = None
    patch: dict[str, Any] | None = None
    subresource: str = ""
    items: list[msgspec.Raw] | None = None


class _ListRequest(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    limit: int = LIST_LIMIT
    continue_: str = msgspec.field(default="", name="continue")


class Request(NamedTuple):
    """One request that changes the cluster: a verb, and its JSON."""

    verb: str
    data: bytes


_HEADS = msgspec.json.Decoder(_Head)


def carry_out(cluster: Cluster, request: Request) -> bytes:
    """Carry out a request in this step; the answer's JSON, for when the step is committed."""
    try:
        head = _decode(request.data)
        if head.items is None:
            return msgspec.json.encode(as_json(*_one(cluster, request.verb, head, request.data)))
        if len(head.items) > ITEMS:
            raise bad_request(f"items: {len(head.items)} objects in one request; send at most {ITEMS}")
    except Refused as refusal:
        return refused(refusal)
    return msgspec.json.encode(
        {"kind": "List", "apiVersion": "v1", "items": [_item(cluster, request.verb, item) for item in head.items]}
    )


def refused(refusal: Refused) -> bytes:
    """The answer that says no."""
    return msgspec.json.encode(refusal.status())


def get(state: SimulatorState, data: bytes) -> bytes:
    """The object that is asked for, or a Status."""
    try:
        head = _decode(data)
        resource, key = _place(head)
        held = state.objects.get(resource.name, {}).get(key)
        if held is None:
            raise not_found(resource.name, key)
    except Refused as refusal:
        return refused(refusal)
    return msgspec.json.encode(as_json(resource, held))


def list_(state: SimulatorState, data: bytes) -> bytes:
    """A page of a resource's objects by key, or a Status."""
    try:
        try:
            asked = msgspec.json.decode(data, type=_ListRequest)
        except msgspec.DecodeError as error:
            raise bad_request(str(error)) from error
        resource = resource_of(asked.api_version, asked.kind, namespaced=bool(asked.namespace))
    except Refused as refusal:
        return refused(refusal)
    objects = state.objects.get(resource.name, {})
    within = f"{asked.namespace}/" if asked.namespace and resource.namespaced else ""
    keys = sorted(key for key in objects if key.startswith(within) and key > asked.continue_)
    page = keys[: max(1, min(asked.limit, LIST_LIMIT))]
    metadata = {"continue": page[-1], "remainingItemCount": len(keys) - len(page)} if len(keys) > len(page) else {}
    items = [as_json(resource, objects[key]) for key in page]
    return msgspec.json.encode(
        {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata, "items": items}
    )


def _item(cluster: Cluster, verb: str, data: msgspec.Raw) -> Mapping[str, object]:
    try:
        resource, held = _one(cluster, verb, _decode(data), data)
    except Refused as refusal:
        return refusal.status()
    name, namespace = name_of(held)
    metadata = {"name": name, "uid": uid_of(held)} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _one(cluster: Cluster, verb: str, head: _Head, data: bytes | msgspec.Raw) -> tuple[Resource, Object]:
    resource, key = _place(head)
    if verb == "create":
        return resource, _create(cluster, resource, head, data)
    if not head.metadata.name:
        raise bad_request("metadata.name: Required value")
    if verb == "delete":
        return resource, cluster.delete(resource, key, uid=head.metadata.uid, grace_s=head.grace_period_seconds)
    if head.patch is None:
        raise bad_request("patch: Required value: a JSON merge patch of the object")
    status = head.subresource == "status"
    return resource, cluster.patch(resource, key, head.patch, status=status, uid=head.metadata.uid)


def _create(cluster: Cluster, resource: Resource, head: _Head, data: bytes | msgspec.Raw) -> Object:
    body = decoded(resource, data)
    if not head.metadata.name and head.metadata.generate_name:
        named = msgspec.json.decode(data)
        named["metadata"]["name"] = head.metadata.generate_name + _suffix(cluster.created)
        body = decoded(resource, msgspec.json.encode(named))
    return cluster.create(resource, body)


def _suffix(number: int) -> str:
    bits, text = splitmix(number), ""
    for _ in range(5):
        bits, digit = divmod(bits, len(_SUFFIX))
        text += _SUFFIX[digit]
    return text


def _decode(data: bytes | msgspec.Raw) -> _Head:
    try:
        return _HEADS.decode(data)
    except msgspec.DecodeError as error:
        raise bad_request(str(error)) from error


def _place(head: _Head) -> tuple[Resource, str]:
    """The resource and the key of the object that a request is about."""
    metadata = head.metadata
    resource = resource_of(head.api_version, head.kind, namespaced=bool(metadata.namespace))
    namespace = (metadata.namespace or "default") if resource.namespaced else ""
    return resource, f"{namespace}/{metadata.name}" if namespace else metadata.name
