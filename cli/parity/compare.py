"""Comparison of two JSON values, with the first path at which they differ."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ANY_OF = "anyOf"
"""An object with this member alone lists all answers that are right."""


class Difference(NamedTuple):
    """The first place at which two values differ.

    Attributes:
        path: as `results[0].filter.code`; empty for the values themselves.
        expected, found: what stands there; None also where nothing does.
    """

    path: str
    expected: Any
    found: Any


def difference(expected: Any, found: Any, path: str = "") -> Difference | None:
    """Compares an answer with the expected one; None when they agree.

    A whole number equals a float of its value, and nothing else equals something of another JSON type.
    """
    match expected, found:
        case {"anyOf": [*answers], **rest}, _ if not rest:
            agrees = any(difference(answer, found, path) is None for answer in answers)
            return None if agrees else Difference(path, expected, found)
        case Mapping(), Mapping():
            return _of_objects(expected, found, path)
        case [*_], [*_]:
            return _of_lists(expected, found, path)
    same = expected == found and isinstance(expected, bool) == isinstance(found, bool)
    return None if same else Difference(path, expected, found)


def _of_objects(expected: Mapping[str, Any], found: Mapping[str, Any], path: str) -> Difference | None:
    for name in sorted(expected.keys() | found.keys()):
        at = f"{path}.{name}" if path else name
        if name not in expected or name not in found:
            return Difference(at, expected.get(name), found.get(name))
        if (different := difference(expected[name], found[name], at)) is not None:
            return different
    return None


def _of_lists(expected: Sequence[Any], found: Sequence[Any], path: str) -> Difference | None:
    for index, (one, other) in enumerate(zip(expected, found, strict=False)):
        if (different := difference(one, other, f"{path}[{index}]")) is not None:
            return different
    return None if len(expected) == len(found) else Difference(f"{path}.length", len(expected), len(found))
