"""When the cyclic garbage collector runs in processes with a large State.

A full collection traverses everything that lives: 0.2 s with 100,000 pods. The services make hardly any reference
cycles; what they make is collected with each snapshot.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 100_000
"""Objects made and not yet freed before the young ones are traversed; some tens of MiB."""

YOUNG_COLLECTIONS = 20
MIDDLE_COLLECTIONS = 50
"""Collections of a generation before the next older one is traversed."""


def collect_seldom() -> None:
    """Lets collections wait for more new objects than Python's defaults, which are for small programs."""
    gc.set_threshold(NEW_OBJECTS, YOUNG_COLLECTIONS, MIDDLE_COLLECTIONS)


@contextmanager
def uncollected() -> Iterator[None]:
    """Pauses collections while long-lived objects are built: they would traverse all of them again and again, and free
    none.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
