"""Decodes the API's JSON in one pass into types with the fields that are kept.

A field that no type names is never built. `resourceVersion` is decoded because watches and writes need it;
unused_field_removal.py removes it from the object that events record.
"""

from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from shared.kube import resource_names
from shared.kube.amounts_as_text import amounts_as_text
from shared.kube.json_text import decode_with, read_json
from shared.kube.meta import KubeStruct, Metadata
from shared.kube.node import Node, NodeMetric, NodeMetricSpec, NodeMetricStatus, NodeSpec, NodeStatus
from shared.kube.pod import Pod, PodSpec, PodStatus

T = TypeVar("T")


class ApiMetadata(Metadata, frozen=True):
    """Metadata with the resourceVersion from which a watch resumes and on which a write is conditional."""

    resource_version: str = ""


class ApiPod(KubeStruct, frozen=True):
    """A pod as the API sends it; the same fields as `Pod` are read."""

    metadata: ApiMetadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ApiNode(KubeStruct, frozen=True):
    """A node as the API sends it."""

    metadata: ApiMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ApiNodeMetric(KubeStruct, frozen=True):
    """A NodeMetric as the API sends it."""

    metadata: ApiMetadata
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


ApiObject = ApiPod | ApiNode | ApiNodeMetric | dict[str, Any]
"""A decoded object: typed where the kept type is, plain JSON for everything else."""

KeptObject = Pod | Node | NodeMetric | dict[str, Any]
"""The part of an object that an event records."""

API_TYPES: dict[str, type] = {"pods": ApiPod, "nodes": ApiNode, resource_names.NODE_METRICS: ApiNodeMetric}
"""Resources with a type of their own; every other one is decoded as plain JSON."""


class ListMetadata(KubeStruct, frozen=True):
    """Metadata of a list: its resourceVersion, and the token of the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMetadata
    items: list[T]


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One line of a watch: ADDED, MODIFIED or DELETED, and the object."""

    type: str
    object: T


class StatusCause(KubeStruct, frozen=True):
    """One `details.causes` entry of a Status."""

    reason: str = ""
    message: str = ""


class StatusDetails(KubeStruct, frozen=True):
    """`details` of a Status."""

    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(KubeStruct, frozen=True):
    """`Status` of the API, its answer to a refused request: the HTTP code, a reason in one word, a message."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class _Versioned(KubeStruct, frozen=True):
    metadata: ApiMetadata


# The API server writes `type` first and without spaces, in every release since watches exist.
_BOOKMARK = b'{"type":"BOOKMARK"'
_ERROR = b'{"type":"ERROR"'
_bookmark = msgspec.json.Decoder(WatchEvent[_Versioned])
_error = msgspec.json.Decoder(WatchEvent[Status])
_status = msgspec.json.Decoder(Status)
_any = msgspec.json.Decoder(dict[str, Any])


class Unreadable(NamedTuple):
    """An object that exists but does not match its type, so nothing else of it is read."""

    key: str
    version: str
    error: str


class Decoder:
    """Decodes pages and watch events of one resource."""

    def __init__(self, resource: str) -> None:
        self.type = API_TYPES.get(resource, dict[str, Any])
        self._page = msgspec.json.Decoder(ListPage[self.type])  # type: ignore[name-defined]
        self._watch_event = msgspec.json.Decoder(WatchEvent[self.type])  # type: ignore[name-defined]

    def page(self, data: bytes) -> ListPage[ApiObject | Unreadable]:
        """Decodes one page of a list."""
        try:
            return decode_with(self._page, data)
        except msgspec.ValidationError:
            raw = read_json(data, ListPage[dict[str, Any]])
            return ListPage(raw.metadata, [self._leniently(item) for item in raw.items])

    def watch_event(self, data: bytes) -> WatchEvent[ApiObject | Unreadable] | str | Status:
        """Decodes one line of a watch: a change, the version of a bookmark, or the Status that ends the watch."""
        if data.startswith(_BOOKMARK):
            return decode_with(_bookmark, data).object.metadata.resource_version
        if data.startswith(_ERROR):
            return decode_with(_error, data).object
        try:
            return decode_with(self._watch_event, data)
        except msgspec.ValidationError:
            raw = read_json(data, WatchEvent[dict[str, Any]])
            return WatchEvent(raw.type, self._leniently(raw.object))

    def object(self, data: bytes) -> ApiObject | Unreadable:
        """Decodes one object."""
        try:
            found: ApiObject = read_json(data, self.type)
        except msgspec.ValidationError:
            return self._leniently(decode_with(_any, data))
        return found

    def _leniently(self, value: dict[str, Any]) -> ApiObject | Unreadable:
        try:
            return msgspec.convert(amounts_as_text(value), self.type)
        except msgspec.ValidationError as error:
            metadata = msgspec.convert(value.get("metadata", {}), ApiMetadata)
            return Unreadable(metadata.key, metadata.resource_version, str(error))


@lru_cache
def decoder_of(resource: str) -> Decoder:
    """Returns the decoder of a resource, built once."""
    return Decoder(resource)


def status_of(data: bytes) -> Status:
    """Decodes the Status of a refusal; a body of another shape, such as a proxy's page, becomes its message."""
    try:
        return decode_with(_status, data)
    except msgspec.DecodeError:
        return Status(message=data[:200].decode(errors="replace"))
