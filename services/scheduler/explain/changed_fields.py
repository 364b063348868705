"""Names the fields in which two observations of an object differ, for people."""

from collections.abc import Iterator
from typing import Any

import msgspec

from shared.first_names import first_names

MOST = 4
"""Fields that are named; the rest is counted."""

_NAMES = ("type", "name")
"""Fields by which the parts of a list are distinguished, as in a pod's conditions and containers."""


def changed_fields(before: object, after: object) -> str:
    """Returns the differing fields, such as `metadata.labels.app, status.conditions[PodScheduled]`; empty for none."""
    found = list(_paths(msgspec.to_builtins(before), msgspec.to_builtins(after), ""))
    return first_names(found, MOST)


def _paths(before: Any, after: Any, path: str) -> Iterator[str]:
    if before == after:
        return
    before, after = _named(before), _named(after)
    if not isinstance(before, dict | type(None)) or not isinstance(after, dict | type(None)):
        yield path
        return
    left, right = before or {}, after or {}
    for name in dict.fromkeys((*left, *right)):
        joined = f"{path}{'' if name.startswith('[') or not path else '.'}{name}"
        is_part = name.startswith("[")
        if is_part and left.get(name) != right.get(name) and (path.endswith("conditions") or len(left) != len(right)):
            # A condition is named as a whole: its type says more than the fields that differ.
            yield joined
        else:
            yield from _paths(left.get(name), right.get(name), joined)


def _named(value: Any) -> Any:
    """Returns the parts of a list by name, where each has one of its own."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(part, dict) for part in value):
        return value
    for field in _NAMES:
        names = [part.get(field) for part in value]
        if all(names) and len(set(names)) == len(names):
            return {f"[{name}]": part for name, part in zip(names, value, strict=True)}
    return value
