"""How one document of a strategy is laid over another: what the newer one states wins, the rest stays.

Source: spec/slo-controller.md 0.4; upstream pkg/util/utils.go, MergeCfg.
"""

from typing import Any, TypeVar

from msgspec.structs import fields, replace

from shared.kube.slo_config import Part

T = TypeVar("T", bound=Part)


def merged(old: T, new: Part) -> T:
    """`new` over `old`, field by field of `old`'s type.

    A stated scalar wins, a stated 0 or False too; an empty text, list or map states nothing. Parts merge field by field, maps entry by
    entry (an entry is replaced whole), lists take the new length and each element merges with the old one at its place (upstream's
    quirk Q15). A field of `ALWAYS` counts as stated: Q12.
    """
    changes: dict[str, Any] = {}
    for field in fields(type(old)):
        stated = getattr(new, field.name)
        if stated is None or stated == field.default:
            stated = new.ALWAYS.get(field.name)
        if stated is not None and stated != ():
            changes[field.name] = _over(getattr(old, field.name), stated)
    return replace(old, **changes)


def states_anything(part: Part, base: type[Part]) -> bool:
    """Whether any field of `base` is stated."""
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
