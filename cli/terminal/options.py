"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.terminal.json_path import OutputType

Command = TypeVar("Command", bound=Callable[..., Any])


def folder_option(command: Command) -> Command:
    """Adds `--dir`, passed as `folder`: which of this machine's systems is meant when the environment names no server."""
    option = click.option(
        "--dir",
        "folder",
        type=click.Path(path_type=Path),
        default=Path(".koord"),
        show_default=True,
        help="The folder of a running `koord up`; KOORD_POSTGRES and KOORD_NATS outrank it.",
    )
    return option(command)


def output_option(command: Command) -> Command:
    """Adds `-o/--output`, passed as `output`."""
    return outputs("table", "json", "yaml")(command)


def outputs(*choices: str) -> Callable[[Command], Command]:
    """Returns the option `-o/--output` of these choices, passed as `output`."""
    kind = OutputType(*choices)
    return click.option("-o", "--output", type=kind, default="table", show_default=True, help="How to print it.")
