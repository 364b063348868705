"""A line on a terminal that names what a command waits for: a server that starts, or that does not respond."""

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import click

from shared.runtime.task_cancellation import cancel_and_wait

SHOWN_AFTER_S = 0.3
INTERVAL_S = 0.2

_Found = TypeVar("_Found")


class Awaited:
    """Names of what is waited for.

    Attributes:
        names: in the order in which they began.
    """

    def __init__(self, begun: Callable[[str], None] | None = None) -> None:
        """Calls `begun` with each name when it begins."""
        self.names: list[str] = []
        self._begun = begun

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Records that something is waited for within the block."""
        if self._begun is not None:
            self._begun(name)
        self.names.append(name)
        try:
            yield
        finally:
            self.names.remove(name)

    async def awaits(self, name: str, answer: Awaitable[_Found]) -> _Found:
        """Returns the result of an awaitable, and records meanwhile that it is waited for."""
        with self.during(name):
            return await answer


@asynccontextmanager
async def shown(awaited: Awaited, verb: str = "waiting for") -> AsyncIterator[None]:
    """Shows on a terminal what is waited for, in one line that is gone at the end; nothing for the first moment, and
    nothing elsewhere.

    Args:
        verb: before the names.
    """
    if not sys.stderr.isatty():
        yield
        return
    showing = asyncio.create_task(_show(awaited, verb))
    try:
        yield
    finally:
        await cancel_and_wait(showing)
        click.echo("\r\x1b[K", err=True, nl=False)


async def _show(awaited: Awaited, verb: str) -> None:
    began = time.monotonic()
    await asyncio.sleep(SHOWN_AFTER_S)
    while True:
        what = f"{verb} {', '.join(awaited.names)}".lstrip()
        line = f"{time.monotonic() - began:.0f} s: {what}" if awaited.names else ""
        click.echo(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}", err=True, nl=False)
        await asyncio.sleep(INTERVAL_S)
