"""The merge of strategy documents: fields that the newer document sets take precedence, the others stay.

Source: spec/slo-controller.md 0.4; upstream pkg/util/utils.go, MergeCfg.
"""

from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from shared.kube.slo_config import Part

T = TypeVar("T", bound=Part)

fields = cache(msgspec.structs.fields)
"""Resolving a type's annotations takes a millisecond."""


def merged(old: T, new: Part) -> T:
    """Merges `new` over `old`, field by field of `old`'s type.

    A scalar that is set takes precedence, also 0 or False; an empty text, list or map counts as absent. Parts merge
    field by field, maps entry by entry (an entry is replaced whole). A list takes the new length, and each element
    merges with the old one at its index (upstream's quirk Q15). A field of `ALWAYS` counts as set (Q12).
    """
    changes: dict[str, Any] = {}
    for field in fields(type(old)):
        value = getattr(new, field.name)
        if value is None or value == field.default:
            value = new.ALWAYS.get(field.name)
        if value is not None and value != ():
            changes[field.name] = _over(getattr(old, field.name), value)
    return replace(old, **changes)


def sets_any_field(part: Part, base: type[Part]) -> bool:
    """Reports whether any field of `base` is set."""
    return any(getattr(part, field.name) not in (None, "", ()) for field in fields(base))


def _over(old: Any, new: Any) -> Any:
    match old, new:
        case Part(), Part():
            return merged(old, new)
        case dict(), dict():
            return old | new
        case [*before], (Part(), *_) if isinstance(new, tuple):
            return tuple(merged(before[index], part) if index < len(before) else part for index, part in enumerate(new))
    return new
