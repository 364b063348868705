"""The run of a command that explains one thing from the log: read, then printed as text or as a document."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from cli.supervisor.log_access import log_of
from cli.terminal.output import Format, show, show_lines
from shared.log.admin.session import reading
from shared.log.reader import LogReader

T = TypeVar("T")


def answer(
    folder: Path,
    output: Format,
    explain: Callable[[LogReader], Awaitable[T]],
    lines: Callable[[T], Iterable[str]],
) -> None:
    """Prints what `explain` finds in the log of a folder or server: its lines, or all of it in another format."""

    async def explained(postgres: str) -> T:
        async with reading(postgres) as log:
            return await explain(log)

    with log_of(folder) as postgres:
        found = asyncio.run(explained(postgres))
    if output == "table":
        show_lines(lines(found))
    else:
        show(found, output)
