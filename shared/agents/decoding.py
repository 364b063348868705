"""Decodes messages of agents: to a valid struct, or to one error that names node, field and reason."""

import re
import types
from typing import Any, ClassVar, Protocol, TypeVar, get_args, get_origin

import msgspec

from shared.errors import KoordError

MAX_BYTES = 1024 * 1024
"""Largest message: the limit of the embedded NATS."""


class BadMessage(KoordError):
    """A message of a node that cannot be decoded or is invalid.

    Attributes:
        what: the kind of message.
        node: the node of the topic.
        field, reason: the place in the message and what is wrong there.
    """

    what: ClassVar[str] = "message"

    def __init__(self, node: str, field: str, reason: str) -> None:
        super().__init__(f"{self.what} of node {node}: {f'{field}: ' if field else ''}{reason}")
        self.node = node
        self.field = field
        self.reason = reason


class OfNode(Protocol):
    """A message that names its node."""

    @property
    def node(self) -> str:
        """The Kubernetes node's name."""
        ...


_T = TypeVar("_T", bound=OfNode)


def decoded(
    decoder: "msgspec.msgpack.Decoder[_T]", kind: type[_T], bad: type[BadMessage], data: bytes, node: str
) -> _T:
    """Decodes a message.

    Args:
        kind: the struct that `decoder` decodes, to name its fields.
        bad: the error of this kind of message.
        node: the node of the topic on which it came.

    Raises:
        BadMessage: as `bad`; it is invalid, or names another node.
    """
    if len(data) > MAX_BYTES:
        raise bad(node, "", f"has {len(data)} bytes; at most {MAX_BYTES} are taken")
    try:
        return on_its_topic(decoder.decode(data), bad, node)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        field = named(kind, path.rstrip("`"))
        if field == "schema":
            reason = f"{reason}; bring metrics ingest to the agents' release first"
        raise bad(node, field, reason) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad(node, "", f"is no MessagePack: {error}") from error


def on_its_topic(message: _T, bad: type[BadMessage], node: str) -> _T:
    """Returns the message, if it came on its own node's topic.

    Raises:
        BadMessage: as `bad`; it names another node.
    """
    if message.node != node:
        raise bad(node, "node", f"names {message.node!r}, another node than its topic")
    return message


def named(kind: Any, path: str) -> str:
    """Returns msgspec's path `$[6][1][3]` with names of fields: `node_usage.cpu[3]`.

    The first place of a struct is its schema.
    """
    names = ""
    for step in re.findall(r"\[([^\]]*)\]|\.(\w+)", path):
        index, name = step
        if name:
            kind, names = Any, f"{names}.{name}"
            continue
        place = _field_at(kind, index)
        if place is None:
            kind, names = _inner(kind), f"{names}[{index}]"
        else:
            kind, name = place
            names = f"{names}.{name}"
    return names.removeprefix(".")


def _field_at(kind: Any, index: str) -> tuple[Any, str] | None:
    """Returns type and name of a place of a struct that is written as an array; None for any other place."""
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct) or not index.isdigit():
        return None
    fields = msgspec.structs.fields(kind)
    number = int(index) - (kind.__struct_config__.tag is not None)
    return (int, "schema") if number < 0 else (fields[number].type, fields[number].name)


def _inner(kind: Any) -> Any:
    """Returns the element type of a sequence."""
    while get_origin(kind) is not tuple and get_args(kind) and not isinstance(kind, types.UnionType):
        kind = get_args(kind)[0]  # Annotated
    return get_args(kind)[0] if get_origin(kind) is tuple else Any
