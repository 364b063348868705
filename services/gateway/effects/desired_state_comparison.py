"""Comparison of an object with a desired state, limited to the fields that the desired state names."""

from typing import Any

from services.gateway.kube_api.unused_field_removal import ObservedObject
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.json_text import json_value
from shared.kube.resource_names import VOLUMES


def desired_patch(desired: FieldsDesired | ObjectDesired) -> dict[str, Any]:
    """Returns the desired state as a JSON merge patch: a field that must be absent is null."""
    return desired.patch if isinstance(desired, FieldsDesired) else desired.body or {}


def fields_named(patch: Any, value: Any) -> Any:
    """Returns the fields of an object that a merge patch names, null for those that are absent."""
    if not isinstance(patch, dict):
        return value
    there = value if isinstance(value, dict) else {}
    return {name: fields_named(part, there.get(name)) for name, part in patch.items()}


def json_body(seen: ObservedObject) -> Any:
    """Returns the kept part of an object as plain JSON values, like a desired state from the log."""
    return seen.object if isinstance(seen.object, dict) else json_value(seen.object)


def current_fields(desired: FieldsDesired | ObjectDesired, seen: ObservedObject) -> Any:
    """Returns the object's values of the fields that the desired state names."""
    return fields_named(desired_patch(desired), json_body(seen))


def other_claim(desired: FieldsDesired, seen: ObservedObject) -> str:
    """Returns `namespace/name` of the claim that a volume has, if a claim is desired and it has another; else empty.

    A volume that an administrator reserved names its claim without a uid.
    """
    ours = (desired.patch.get("spec") or {}).get("claimRef") if desired.resource == VOLUMES else None
    there = (json_body(seen).get("spec") or {}).get("claimRef")
    if not ours or not there:
        return ""
    is_ours = all(there.get(name) in (None, "", ours.get(name)) for name in ("namespace", "name", "uid"))
    return "" if is_ours else f"{there.get('namespace', '')}/{there.get('name', '')}"


def matches(desired: FieldsDesired | ObjectDesired, seen: ObservedObject) -> bool:
    """Returns whether the object's fields equal the desired state, byte by byte.

    A server may normalise a value (`1000m` to `1`), and fields that are not kept read as absent. So a desired state
    that does not match may have been written all the same; only the response to the write shows the server's form.
    """
    return bool(current_fields(desired, seen) == desired_patch(desired))
