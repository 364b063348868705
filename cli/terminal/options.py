"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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
    choices = click.Choice(["table", "json", "yaml"])
    option = click.option("-o", "--output", type=choices, default="table", show_default=True, help="How to print it.")
    return option(command)
