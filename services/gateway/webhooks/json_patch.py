"""JSON Patch (RFC 6902) between two JSON values, for admission responses.

Values that are equal in Python count as equal, so `1` and `true` are not distinguished; no admission rule makes one of
the other.
"""

from typing import Any

Operation = dict[str, Any]


def patch(before: Any, after: Any, path: str = "") -> list[Operation]:
    """Returns the operations that turn `before` into `after`; a list whose length changes is replaced whole."""
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        return _of_objects(before, after, path)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            step for at, pair in enumerate(zip(before, after, strict=True)) for step in patch(*pair, f"{path}/{at}")
        ]
    return [{"op": "replace", "path": path, "value": after}]


def _of_objects(before: dict[str, Any], after: dict[str, Any], path: str) -> list[Operation]:
    steps: list[Operation] = [
        {"op": "remove", "path": f"{path}/{_escaped(name)}"} for name in sorted(before.keys() - after.keys())
    ]
    for name, value in after.items():
        at = f"{path}/{_escaped(name)}"
        steps += patch(before[name], value, at) if name in before else [{"op": "add", "path": at, "value": value}]
    return steps


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
