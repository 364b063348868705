"""The name that was probably meant by one that does not exist."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
"""How msgspec names a field that a type does not have."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns `; perhaps 'x' is meant` with the closest of the known names; empty where none is close."""
    close = closest(name, known)
    return f"; perhaps {close!r} is meant" if close else ""


def closest(name: str, known: Iterable[str]) -> str:
    """Returns the closest of the known names; empty where none is close.

    `namespace/name` is compared by its name, which may be in another namespace: all names of one would be close to it.
    """
    namespace, slash, own = name.lower().rpartition("/")
    by_case: dict[str, str] = {}
    for each in known:
        key = each.lower().rpartition("/")[2] if slash else each.lower()
        if key not in by_case or each.lower().startswith(f"{namespace}/"):
            by_case[key] = each
    close = get_close_matches(own, by_case, n=1)
    return by_case[close[0]] if close else ""


def with_closest_field(message: str, kind: Any) -> str:
    """Adds to the message of a `msgspec.ValidationError` about an unknown field the closest one of the type.

    Args:
        message: of the error.
        kind: the type into which was decoded; the fields of the types within it are known as well.
    """
    found = _UNKNOWN.search(message)
    return message + did_you_mean(found[1], field_names(kind)) if found else message


def field_names(kind: Any) -> set[str]:
    """Returns the encoded names of all fields of a type and of the types within it."""
    return {name for struct in _structs(inspect.type_info(kind), set()) for name in struct.__struct_encode_fields__}


def _structs(info: Any, seen: set[type]) -> Iterator[type[msgspec.Struct]]:
    if isinstance(info, inspect.StructType):
        if info.cls in seen:
            return
        seen.add(info.cls)
        yield info.cls
        for field in info.fields:
            yield from _structs(field.type, seen)
    for part in ("type", "item_type", "key_type", "value_type"):
        if (inner := getattr(info, part, None)) is not None:
            yield from _structs(inner, seen)
    for inner in (*getattr(info, "types", ()), *getattr(info, "item_types", ())):
        yield from _structs(inner, seen)
