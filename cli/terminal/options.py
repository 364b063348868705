"""Options that several commands share."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.terminal import name_completion
from cli.terminal.json_path import OutputType

Command = TypeVar("Command", bound=Callable[..., Any])


def folder_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--dir` and `--context`: which system is meant. The command gets the folder to search as `folder`; the
    environment has the servers of the context meanwhile.
    """

    @wraps(command)
    def chosen(*arguments: Any, folder: Path | None, system_context: str | None, **options: Any) -> Any:
        from cli.system_contexts.chosen_system import chosen_system

        with chosen_system(folder, system_context) as found:
            return command(*arguments, folder=found, **options)

    directory = click.option(
        "--dir",
        "folder",
        type=click.Path(path_type=Path),
        help="The folder of a `koord up`; KOORD_POSTGRES and KOORD_NATS outrank it.  [default: .koord]",
    )
    context = click.option(
        "--context",
        "system_context",
        metavar="NAME",
        help="The system of this name: `koord context list`.  [env: KOORD_CONTEXT]",
        shell_complete=name_completion.system_contexts,
    )
    return directory(context(chosen))


def output_option(command: Command) -> Command:
    """Adds `-o/--output`, passed as `output`."""
    return outputs("table", "json", "yaml")(command)


def outputs(*choices: str) -> Callable[[Command], Command]:
    """Returns the option `-o/--output` of these choices, passed as `output`."""
    kind = OutputType(*choices)
    return click.option("-o", "--output", type=kind, default="table", show_default=True, help="How to print it.")
