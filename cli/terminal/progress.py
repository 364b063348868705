"""A bar on stderr for a command that reads much of a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Advance = Callable[[int], None]
"""Called with the number of events that were read since the last call."""

SHORT = 20_000
"""Events that are read before a bar could be seen."""


def no_progress(_events: int) -> None:
    """Shows nothing."""


@contextmanager
def progress(label: str, events: int) -> Iterator[Advance]:
    """Shows a bar while so many events are read, on a terminal and where it takes a while."""
    if events <= SHORT or not sys.stderr.isatty():
        yield no_progress
        return
    with click.progressbar(length=events, label=label, file=sys.stderr) as bar:
        yield bar.update
