"""The command of one kind: `koord describe KIND NAME`."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from cli.describe.description import Description, text_of
from cli.supervisor.log_access import log_of
from cli.terminal.object_name import cluster_name, namespaced_name
from cli.terminal.options import folder_option
from cli.terminal.output import show_lines
from shared.log.admin.session import reading
from shared.log.reader import LogReader

Describe = Callable[[LogReader, str], Coroutine[Any, Any, Description]]


def describe_command(
    describe: Describe, summary: str, *, is_namespaced: bool = False, complete: Callable[..., Any] | None = None
) -> click.Command:
    """Returns the command that describes one object of a kind."""

    def command(*, name: str, folder: Path) -> None:
        async def described(postgres: str) -> Description:
            async with reading(postgres) as log:
                return await describe(log, name)

        with log_of(folder) as postgres:
            found = asyncio.run(described(postgres))
        show_lines(text_of(found).splitlines())

    adds_name = namespaced_name if is_namespaced else cluster_name(complete)
    named: Any = adds_name(folder_option(command))
    return click.command(help=summary)(named)
