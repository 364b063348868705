"""A list of names in a sentence, which must not become longer with the cluster."""

from collections.abc import Sequence


def first_names(names: Sequence[str], most: int, *, rest: str = "more") -> str:
    """Returns the first names, and how many others there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} {rest}" if len(names) > most else ""
    return ", ".join(names[:most]) + more
