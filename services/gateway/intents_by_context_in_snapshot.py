"""Values by intent in snapshots: grouped by the context of the intent, in order of seq."""

from collections.abc import Mapping
from operator import itemgetter
from typing import TypeVar

from shared.events import Cause

T = TypeVar("T")

ByContext = dict[str, list[tuple[int, T]]]


def by_context(items: Mapping[Cause, T]) -> ByContext[T]:
    """Groups values by the context of their intent, in order of seq."""
    grouped: ByContext[T] = {}
    for cause, item in sorted(items.items(), key=itemgetter(0)):
        grouped.setdefault(cause.context, []).append((cause.seq, item))
    return grouped


def by_cause(stored: ByContext[T]) -> dict[Cause, T]:
    """Reverses `by_context`."""
    return {Cause(context, seq): item for context, items in stored.items() for seq, item in items}
