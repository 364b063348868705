"""Fields of an object that this system has written, by the API server's record of it (`metadata.managedFields`). Pure.

Every write of the gateway names the field manager `koordstream`. The record survives restarts, upgrades and the loss of
the log, and the API server moves a field to another manager as soon as that one changes it.

Fields are removed one by one, with a merge patch. A server-side apply without any field would be shorter, but takes
fields that no manager owns along, if their parent has one of ours.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from services.gateway.kube_api.client import MANAGER

Raw = dict[str, Any]

_EXISTENCE = "."
"""Key in `fieldsV1` of a map or a list's item itself, beside those of its content."""


def is_own(body: Mapping[str, Any]) -> bool:
    """Reports whether this system wrote an object and no other manager did."""
    managers = {entry.get("manager") for entry in _entries(body)}
    return managers == {MANAGER}


def removals(body: Mapping[str, Any]) -> dict[str, Raw]:
    """Returns the merge patches that remove this system's fields, by subresource (empty: the object itself).

    A field that another manager owns as well stays. A map is removed if this system made it and nothing else is in it.
    """
    others: Raw = {}
    own: dict[str, Raw] = {}
    for entry in _entries(body):
        fields = entry.get("fieldsV1") or {}
        if entry.get("manager") == MANAGER:
            subresource = str(entry.get("subresource", ""))
            own[subresource] = _merged(own.get(subresource, {}), fields)
        else:
            others = _merged(others, fields)
    patches = {subresource: _removal(fields, body, others) for subresource, fields in own.items()}
    return {subresource: patch for subresource, patch in patches.items() if patch}


def describe(patches: Mapping[str, Raw]) -> str:
    """Returns the fields that patches change, for people: `status.allocatable: a, b; metadata.labels: c`."""
    grouped: dict[str, list[str]] = {}
    for patch in patches.values():
        for path in _paths(patch, ()):
            grouped.setdefault(".".join(path[:-1]), []).append(path[-1])
    return "; ".join(
        f"{parent}: {', '.join(names)}" if parent else ", ".join(names) for parent, names in grouped.items()
    )


def _entries(body: Mapping[str, Any]) -> Iterable[Raw]:
    entries: list[Raw] = body["metadata"].get("managedFields") or []
    return entries


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> Raw:
    return dict(one) | {key: _merged(one.get(key) or {}, fields or {}) for key, fields in other.items()}


def _removal(fields: Mapping[str, Any], value: Mapping[str, Any], others: Mapping[str, Any]) -> Raw:
    """Returns the merge patch that removes fields from a map.

    Args:
        fields: those of this system, as `fieldsV1` has them at this level.
        value: the map.
        others: those of the other managers at this level.
    """
    patch: Raw = {}
    for key, below in fields.items():
        name = key.removeprefix("f:")
        if name == key or name not in value:
            continue
        current, shared = value[name], others.get(key)
        if not below.keys() - {_EXISTENCE}:
            # Of a map with content of others only the existence may be ours: it stays.
            if shared is None and not (_EXISTENCE in below and current):
                patch[name] = None
        elif isinstance(current, list):
            rest = [item for item in current if not _is_own_item(item, below, shared or {})]
            if len(rest) < len(current):
                patch[name] = rest
        elif isinstance(current, dict) and (inner := _removal(below, current, shared or {})):
            empties = all(inner.get(each, value) is None for each in current)
            patch[name] = None if empties and _EXISTENCE in below and shared is None else inner
    return patch


def _is_own_item(item: object, fields: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Reports whether this system made an item of a list with keys, and no other manager owns a field of it."""
    return any(
        key.startswith("k:") and key not in others and _EXISTENCE in below and _has_key(item, json.loads(key[2:]))
        for key, below in fields.items()
    )


def _has_key(item: object, key: Mapping[str, Any]) -> bool:
    return isinstance(item, dict) and all(item.get(name) == value for name, value in key.items())


def _paths(patch: Mapping[str, Any], parents: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, below in patch.items():
        if isinstance(below, dict):
            yield from _paths(below, (*parents, name))
        else:
            yield (*parents, f"items of {name}" if isinstance(below, list) else name)
