"""Errors of task groups."""

from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import KoordError


@contextmanager
def first_error_alone() -> Iterator[None]:
    """Raises the first KoordError of a task group by itself, as the runner reports one; other errors pass in the group."""
    try:
        yield
    except* KoordError as failed:
        raise failed.exceptions[0] from None
