"""All faults of a document, by a reader that stops at the first: what is at fault is taken out, and the rest read again.

A fault that only follows from what was taken out, such as an empty list, is not one of the document.
"""

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

MOST = 10
"""Faults that are named of one document."""

_TOKENS = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_NAMED = re.compile(r"^([A-Za-z]\w*(?:\.\w+|\[[^\]]+\])*) is |- at `\$\.([^`]+)`$")
"""Readers of a part name the field within it in the reason: `usageThresholds[cpu] is 140`, or ``- at `$.enable` ``."""

Path = tuple[str | int, ...]


class Fault(NamedTuple):
    """A fault.

    Attributes:
        path: its place, such as `profiles[0].plugins.filter.enabled[1].name`; empty for the whole document.
        reason: the fault and what to do.
    """

    path: str
    reason: str


def all_faults(document: Any, first_fault: Callable[[Any], Fault | None]) -> list[Fault]:
    """Returns the faults in the order in which the reader meets them, at most `MOST`; paths are those of the document.

    Args:
        document: plain data; it is not changed.
        first_fault: the reader; None for a document without faults.
    """
    rest, taken, faults = deepcopy(document), _TakenOut(), list[Fault]()
    for _ in range(3 * MOST):
        fault = first_fault(rest)
        if fault is None or len(faults) == MOST:
            break
        place = _tokens(fault.path)
        target = (*place, *_within(fault.reason))
        path = _text(taken.original(place))
        is_repeated = any(each.path == path and fault.reason in each.reason for each in faults)
        follows = is_repeated or taken.is_at_or_below(taken.original(target))
        if not follows:
            faults.append(Fault(path, fault.reason))
        # A list loses a whole element only where the element cannot be read without what was taken out of it.
        if ((follows and not is_repeated) or not taken.out_of(rest, target)) and not taken.out_of(
            rest, _element(target)
        ):
            break
    return faults


def _within(reason: str) -> Path:
    """Returns the place that a reason names within the place of its fault; empty for none."""
    if unknown := _UNKNOWN.search(reason):
        return (unknown[1],)
    named = _NAMED.search(reason)
    return _tokens(named[1] or named[2]) if named else ()


class _TakenOut:
    """The places of a document that were taken out."""

    def __init__(self) -> None:
        self._places: list[Path] = []

    def original(self, place: Path) -> Path:
        """Returns where a place of the rest is in the document: lists have lost elements."""
        found: Path = ()
        for token in place:
            found = (*found, self._original_index(found, token) if isinstance(token, int) else token)
        return found

    def _original_index(self, of: Path, index: int) -> int:
        for lost in sorted(each[-1] for each in self._places if each[:-1] == of and isinstance(each[-1], int)):
            index += lost <= index
        return index

    def is_at_or_below(self, place: Path) -> bool:
        """Returns whether something was taken out there, or of what is there."""
        return any(each[: len(place)] == place for each in self._places)

    def out_of(self, rest: Any, place: Path) -> bool:
        """Takes out what is at a place of the rest; returns whether there was anything."""
        if not place:
            return False
        original, holder = self.original(place), rest
        try:
            for token in place[:-1]:
                holder = holder[token]
            del holder[place[-1]]
        except (KeyError, IndexError, TypeError):
            return False
        self._places.append(original)
        return True


def _element(place: Path) -> Path:
    """Returns the innermost list element at or around a place; empty for none."""
    for length in range(len(place), 0, -1):
        if isinstance(place[length - 1], int):
            return place[:length]
    return ()


def _tokens(path: str) -> Path:
    return tuple(int(index) if index else name for name, index in _TOKENS.findall(path))


def _text(place: Sequence[str | int]) -> str:
    return "".join(f"[{token}]" if isinstance(token, int) else f".{token}" for token in place).removeprefix(".")
