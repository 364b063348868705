"""The API's own shapes, as they are decoded from bytes: one pass over the JSON, straight into the kept types.

What a kept type does not name is never built. `resourceVersion` is read here, since watches and writes need it, but is not
part of the kept object: trim.py takes it off.
"""

import re
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from shared.kube import resource_names
from shared.kube.meta import KubeStruct, Metadata
from shared.kube.node import Node, NodeMetric, NodeMetricSpec, NodeMetricStatus, NodeSpec, NodeStatus
from shared.kube.pod import Pod, PodSpec, PodStatus

T = TypeVar("T")


class WireMetadata(Metadata, frozen=True):
    """Metadata with the version that a watch resumes from and a write is conditional on."""

    resource_version: str = ""


class WirePod(KubeStruct, frozen=True):
    """A pod as the API sends it; the same fields as `Pod` are read."""

    metadata: WireMetadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class WireNode(KubeStruct, frozen=True):
    """A node as the API sends it."""

    metadata: WireMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class WireNodeMetric(KubeStruct, frozen=True):
    """A NodeMetric as the API sends it."""

    metadata: WireMetadata
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


Wire = WirePod | WireNode | WireNodeMetric | dict[str, Any]
"""A decoded object: typed where the kept type is, plain JSON for everything else."""

Kept = Pod | Node | NodeMetric | dict[str, Any]
"""What an event holds of an object."""

WIRE_TYPES: dict[str, type] = {"pods": WirePod, "nodes": WireNode, resource_names.NODE_METRICS: WireNodeMetric}
"""Resources with a kept type; every other one is decoded as plain JSON."""


class ListMetadata(KubeStruct, frozen=True):
    """Metadata of a list: the version it stands for, and where its next page begins."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMetadata
    items: list[T]


class Line(msgspec.Struct, Generic[T], frozen=True):
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
    """The API's answer when it refuses: the HTTP code, a reason in one word, a message for people."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class _Versioned(KubeStruct, frozen=True):
    metadata: WireMetadata


# The API server writes `type` first and without spaces, in every release since watches exist.
_BOOKMARK = b'{"type":"BOOKMARK"'
_ERROR = b'{"type":"ERROR"'
_bookmark = msgspec.json.Decoder(Line[_Versioned])
_error = msgspec.json.Decoder(Line[Status])
_status = msgspec.json.Decoder(Status)
_any = msgspec.json.Decoder(dict[str, Any])
_AMOUNT = re.compile(r"resources|usage", re.IGNORECASE)


class Unreadable(NamedTuple):
    """An object that does not fit the shape we read: it is there, and nothing else can be said of it."""

    key: str
    version: str
    error: str


class Decoder:
    """Reads pages and watch lines of one resource."""

    def __init__(self, resource: str) -> None:
        self.type = WIRE_TYPES.get(resource, dict[str, Any])
        self._page = msgspec.json.Decoder(Page[self.type])  # type: ignore[name-defined]
        self._line = msgspec.json.Decoder(Line[self.type])  # type: ignore[name-defined]

    def page(self, data: bytes) -> Page[Wire | Unreadable]:
        """Read one page of a list."""
        try:
            return self._page.decode(data)
        except msgspec.ValidationError:
            raw = msgspec.json.decode(data, type=Page[dict[str, Any]])
            return Page(raw.metadata, [self._leniently(item) for item in raw.items])

    def line(self, data: bytes) -> Line[Wire | Unreadable] | str | Status:
        """Read one line of a watch: a change, the version of a bookmark, or the Status with which the watch ends."""
        if data.startswith(_BOOKMARK):
            return _bookmark.decode(data).object.metadata.resource_version
        if data.startswith(_ERROR):
            return _error.decode(data).object
        try:
            return self._line.decode(data)
        except msgspec.ValidationError:
            raw = msgspec.json.decode(data, type=Line[dict[str, Any]])
            return Line(raw.type, self._leniently(raw.object))

    def object(self, data: bytes) -> Wire | Unreadable:
        """Read one object."""
        try:
            return msgspec.json.decode(data, type=self.type)
        except msgspec.ValidationError:
            return self._leniently(_any.decode(data))

    def _leniently(self, value: dict[str, Any]) -> Wire | Unreadable:
        try:
            return msgspec.convert(_texts(value), self.type)
        except msgspec.ValidationError as error:
            metadata = msgspec.convert(value.get("metadata", {}), WireMetadata)
            return Unreadable(metadata.key, metadata.resource_version, str(error))


@lru_cache
def decoder_of(resource: str) -> Decoder:
    """The decoder of a resource, built once."""
    return Decoder(resource)


def status_of(data: bytes) -> Status:
    """Read the Status of a refusal; a body that is none (a proxy's page) becomes its message."""
    try:
        return _status.decode(data)
    except msgspec.DecodeError:
        return Status(message=data[:200].decode(errors="replace"))


def _texts(value: Any, *, amounts: bool = False) -> Any:
    """Write amounts that a custom resource holds as numbers (`cpu: 4`) as the quantities they stand for (`"4"`).

    The API turns quantities of built-in types into texts; a custom resource keeps what was written, and its schema allows both.
    """
    if isinstance(value, dict):
        return {key: _texts(item, amounts=amounts or bool(_AMOUNT.search(key))) for key, item in value.items()}
    if isinstance(value, list):
        return [_texts(item, amounts=amounts) for item in value]
    return str(value) if amounts and isinstance(value, int | float) and not isinstance(value, bool) else value
