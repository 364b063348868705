"""How what agents send is decoded: a struct that fits, or one error that names node, field and reason."""

import re
import types
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from shared.errors import KoordError

_T = TypeVar("_T")

MAX_BYTES = 1024 * 1024
"""Of one message: what the embedded NATS takes."""


class BadMessage(KoordError):
    """A message of a node that cannot be taken.

    Attributes:
        node, field, reason: whose, where in it, and why.
    """

    def __init__(self, what: str, node: str, field: str, reason: str) -> None:
        super().__init__(f"{what} of node {node}: {f'{field}: ' if field else ''}{reason}")
        self.node = node
        self.field = field
        self.reason = reason


def decoded(decoder: "msgspec.msgpack.Decoder[_T]", kind: type, what: str, data: bytes, node: str) -> _T:
    """Decode a message.

    Args:
        kind: the struct that `decoder` decodes, to name its fields.
        node: whose topic it came on.

    Raises:
        BadMessage: it does not fit.
    """
    if len(data) > MAX_BYTES:
        raise BadMessage(what, node, "", f"has {len(data)} bytes; at most {MAX_BYTES} are taken")
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        field = named(kind, path.rstrip("`"))
        if field == "schema":
            reason = f"{reason}; bring metrics ingest to the agents' release first"
        raise BadMessage(what, node, field, reason) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadMessage(what, node, "", f"is no MessagePack: {error}") from error


def named(kind: Any, path: str) -> str:
    """Msgspec's `$[6][1][3]` with the names of the fields: `node_usage.cpu[3]`. The first place of a struct is its schema."""
    names = ""
    for step in re.findall(r"\[([^\]]*)\]|\.(\w+)", path):
        index, name = step
        if name:
            kind, names = Any, f"{names}.{name}"
            continue
        place = _place(kind, index)
        if place is None:
            kind, names = _inner(kind), f"{names}[{index}]"
        else:
            kind, name = place
            names = f"{names}.{name}"
    return names.removeprefix(".")


def _place(kind: Any, index: str) -> tuple[Any, str] | None:
    """Type and name of a place of a struct that is written as an array; None when it is none."""
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct) or not index.isdigit():
        return None
    fields = msgspec.structs.fields(kind)
    number = int(index) - (kind.__struct_config__.tag is not None)
    return (int, "schema") if number < 0 else (fields[number].type, fields[number].name)


def _inner(kind: Any) -> Any:
    """What a sequence holds."""
    while get_origin(kind) is not tuple and get_args(kind) and not isinstance(kind, types.UnionType):
        kind = get_args(kind)[0]  # Annotated
    return get_args(kind)[0] if get_origin(kind) is tuple else Any
