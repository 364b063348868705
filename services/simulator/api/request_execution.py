"""Requests of clients to the simulated API, and the responses: JSON of Kubernetes objects on the bus.

    koord.simulator.create    an object, or {"kind": "List", "items": [...]}
    koord.simulator.delete    {"apiVersion", "kind", "metadata": {"namespace", "name", "uid"?}, "gracePeriodSeconds"?}
    koord.simulator.patch     the same with {"patch": {...}, "subresource"?: "status"}, a JSON merge patch
    koord.simulator.get       {"apiVersion", "kind", "metadata": {"namespace", "name"}}
    koord.simulator.list      {"apiVersion", "kind", "namespace"?, "limit"?, "continue"?}

The response is the object, or a Status with the reason of the error. Create, delete and patch accept a List too: its
items are executed one by one, and the response is a List with the name and uid, or a Status, of each.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from services.simulator.api.api_errors import ApiError, bad_request, not_found
from services.simulator.api.api_transaction import ApiTransaction
from services.simulator.api.object_conversion import as_json, decoded, name_of
from services.simulator.api.resource_kinds import Resource, resource_of
from services.simulator.seeded_random import splitmix
from services.simulator.state import Object, SimulatorState, uid_of
from shared.kube.json_text import decode_with, read_json

LIST_LIMIT = 500
"""Objects in one response to a list, unless the request has a lower limit."""

ITEMS = 2_000
"""Objects in one request, at most."""

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class _Name(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generate_name: str = msgspec.field(default="", name="generateName")


class _RequestHeader(msgspec.Struct, rename="camel"):
    """The fields of a request that select the operation and the object."""

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


_HEADERS = msgspec.json.Decoder(_RequestHeader)


def execute(api: ApiTransaction, request: Request) -> bytes:
    """Executes a request in this step. Returns the response, to be sent after the commit of the step."""
    try:
        head = _decode(request.data)
        if head.items is None:
            return msgspec.json.encode(as_json(*_one(api, request.verb, head, request.data)))
        if len(head.items) > ITEMS:
            raise bad_request(f"items: {len(head.items)} objects in one request; send at most {ITEMS}")
    except ApiError as error:
        return error_response(error)
    return msgspec.json.encode(
        {"kind": "List", "apiVersion": "v1", "items": [_item(api, request.verb, item) for item in head.items]}
    )


def error_response(error: ApiError) -> bytes:
    """Encodes an error response."""
    return msgspec.json.encode(error.status())


def get(state: SimulatorState, data: bytes) -> bytes:
    """Returns the requested object, or a Status."""
    try:
        head = _decode(data)
        resource, key = _place(head)
        stored = state.objects.get(resource.name, {}).get(key)
        if stored is None:
            raise not_found(resource.name, key)
    except ApiError as error:
        return error_response(error)
    return msgspec.json.encode(as_json(resource, stored))


def list_(state: SimulatorState, data: bytes) -> bytes:
    """Returns a page of a resource's objects by key, or a Status."""
    try:
        try:
            query = read_json(data, _ListRequest)
        except msgspec.DecodeError as error:
            raise bad_request(str(error)) from error
        resource = resource_of(query.api_version, query.kind, namespaced=bool(query.namespace))
    except ApiError as error:
        return error_response(error)
    objects = state.objects.get(resource.name, {})
    within = f"{query.namespace}/" if query.namespace and resource.namespaced else ""
    keys = sorted(key for key in objects if key.startswith(within) and key > query.continue_)
    page = keys[: max(1, min(query.limit, LIST_LIMIT))]
    metadata = {"continue": page[-1], "remainingItemCount": len(keys) - len(page)} if len(keys) > len(page) else {}
    items = [as_json(resource, objects[key]) for key in page]
    return msgspec.json.encode(
        {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata, "items": items}
    )


def _item(api: ApiTransaction, verb: str, data: msgspec.Raw) -> Mapping[str, object]:
    try:
        resource, stored = _one(api, verb, _decode(data), data)
    except ApiError as error:
        return error.status()
    name, namespace = name_of(stored)
    metadata = {"name": name, "uid": uid_of(stored)} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _one(api: ApiTransaction, verb: str, head: _RequestHeader, data: bytes | msgspec.Raw) -> tuple[Resource, Object]:
    try:
        return _executed(api, verb, head, data)
    except msgspec.DecodeError as error:  # in a field that the header does not have
        raise bad_request(str(error)) from error
    except RecursionError as error:
        # An object may be decoded and yet be too deep for the functions that walk through it, before it is stored.
        raise bad_request("the object is nested too deeply") from error


def _executed(
    api: ApiTransaction, verb: str, head: _RequestHeader, data: bytes | msgspec.Raw
) -> tuple[Resource, Object]:
    resource, key = _place(head)
    if verb == "create":
        return resource, _create(api, resource, head, data)
    if not head.metadata.name:
        raise bad_request("metadata.name: Required value")
    if verb == "delete":
        return resource, api.delete(resource, key, uid=head.metadata.uid, grace_s=head.grace_period_seconds)
    if head.patch is None:
        raise bad_request("patch: Required value: a JSON merge patch of the object")
    status = head.subresource == "status"
    return resource, api.patch(resource, key, head.patch, status=status, uid=head.metadata.uid)


def _create(api: ApiTransaction, resource: Resource, head: _RequestHeader, data: bytes | msgspec.Raw) -> Object:
    body = decoded(resource, data)
    if not head.metadata.name and head.metadata.generate_name:
        named = read_json(bytes(data))
        named["metadata"]["name"] = head.metadata.generate_name + suffix(api.created)
        body = decoded(resource, msgspec.json.encode(named))
    return api.create(resource, body)


def suffix(number: int) -> str:
    """Returns the end of a generated name, for the number of objects that were created before."""
    bits, text = splitmix(number), ""
    for _ in range(5):
        bits, digit = divmod(bits, len(_SUFFIX))
        text += _SUFFIX[digit]
    return text


def _decode(data: bytes | msgspec.Raw) -> _RequestHeader:
    try:
        return decode_with(_HEADERS, bytes(data))
    except msgspec.DecodeError as error:
        raise bad_request(str(error)) from error


def _place(head: _RequestHeader) -> tuple[Resource, str]:
    """Returns the resource and the key of the object in a request."""
    metadata = head.metadata
    resource = resource_of(head.api_version, head.kind, namespaced=bool(metadata.namespace))
    namespace = (metadata.namespace or "default") if resource.namespaced else ""
    return resource, f"{namespace}/{metadata.name}" if namespace else metadata.name
