"""Strategic merge patches of pods: objects merge, lists of named things merge by their names, other lists are replaced.

Source: Kubernetes' strategic merge patch with the patch keys of the Pod type (k8s.io/api/core/v1).
"""

from collections.abc import Mapping
from typing import Any

from shared.errors import KoordError

MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "ownerReferences": "uid",
    "conditions": "type",
}
"""List field of a pod -> the key of its items."""

SETS = frozenset({"finalizers"})
"""Lists of plain values that merge to their union."""

_DELETE_FROM, _ORDER, _RETAIN = "$deleteFromPrimitiveList/", "$setElementOrder/", "$retainKeys"


class BadPatch(KoordError):
    """A patch that does not fit its object."""


def merged(original: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Applies a patch; neither argument is changed.

    Raises:
        BadPatch: a directive is unknown, or an item of a list lacks its name.
    """
    match patch.get("$patch"):
        case "replace":
            return {name: _plain(value) for name, value in patch.items() if name != "$patch" and value is not None}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise BadPatch(f"$patch is {other!r}; give replace, merge or delete")
    result = dict(original)
    if _RETAIN in patch:
        result = {name: value for name, value in result.items() if name in patch[_RETAIN]}
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            field = name.removeprefix(_DELETE_FROM)
            result[field] = [item for item in result.get(field) or () if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = _merged_value(name, result.get(name), value)
    for name, order in patch.items():
        if name.startswith(_ORDER) and (field := name.removeprefix(_ORDER)) in result:
            result[field] = _ordered(field, result[field], order)
    return result


def _merged_value(name: str, before: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return merged(before if isinstance(before, Mapping) else {}, value)
    if not isinstance(value, list):
        return value
    if name in MERGE_KEYS and all(isinstance(item, Mapping) for item in value):
        return _merged_list(name, before if isinstance(before, list) else [], value)
    if name in SETS and isinstance(before, list):
        return [*before, *(item for item in value if item not in before)]
    return _plain(value)


def _merged_list(name: str, before: list[dict[str, Any]], patches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    key = MERGE_KEYS[name]
    if any(set(item) == {"$patch"} and item["$patch"] == "replace" for item in patches):
        return [_plain(item) for item in patches if set(item) != {"$patch"}]
    result = list(before)
    added = []
    for patch in patches:
        if (which := patch.get(key)) is None:
            raise BadPatch(f"an item of {name} lacks {key}, by which it would be found")
        at = next((index for index, item in enumerate(result) if item.get(key) == which), None)
        match patch.get("$patch"), at:
            case "delete", None:
                continue
            case "delete", int():
                result.pop(at)
            case _, None:
                added.append(merged({}, patch))
            case _:
                result[at] = merged(result[at], patch)
    return [*result, *added]


def _ordered(field: str, items: list[Any], order: list[Any]) -> list[Any]:
    key = MERGE_KEYS.get(field)
    names = [entry.get(key) if key and isinstance(entry, Mapping) else entry for entry in order]

    def place(item: Any) -> int:
        name = item.get(key) if key and isinstance(item, Mapping) else item
        return names.index(name) if name in names else len(names)

    return sorted(items, key=place)


def _plain(value: Any) -> Any:
    """Returns the values that a patch adds, without its nulls and directives."""
    if isinstance(value, Mapping):
        return {n: _plain(v) for n, v in value.items() if v is not None and not n.startswith("$")}
    return [_plain(item) for item in value] if isinstance(value, list) else value
