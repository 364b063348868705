"""The system that a command means: by option, environment, or the context in use."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from cli.supervisor.system_folder import NoSystem
from cli.system_contexts.contexts_file import SERVERS, SystemContext, read_contexts
from shared.errors import KoordError

CONTEXT = "KOORD_CONTEXT"
"""Variable that names a context."""

DEFAULT_FOLDER = Path(".koord")
NO_FOLDER = Path(os.devnull)
"""A path below which no system is: servers of a context are not mixed with those of a folder."""


@contextmanager
def chosen_system(folder: Path | None, context: str | None) -> Iterator[Path]:
    """Yields the folder to search, while the environment has the servers of the context that was chosen.

    What is first in this list decides: `--context`, KOORD_POSTGRES or KOORD_NATS, `--dir`, KOORD_CONTEXT, the context
    in use, `.koord`.

    Args:
        folder: of `--dir`; None without the option.
        context: of `--context`; None without the option.

    Raises:
        KoordError: there is no such context, or the file that it names cannot be read.
        NoSystem: of the block, with the context's name.
        UsageError: both were given.
    """
    if context and folder:
        raise click.UsageError("--context and --dir both name a system; give one of them")
    has_servers = any(os.environ.get(name) for name in ("KOORD_POSTGRES", "KOORD_NATS"))
    if not context and (folder or has_servers):
        yield folder or DEFAULT_FOLDER
        return
    named = context or os.environ.get(CONTEXT, "")
    contexts = read_contexts()
    if not named and not contexts.current:
        yield DEFAULT_FOLDER
        return
    chosen = contexts.find(named or contexts.current)
    with servers_in_environment(variables_of(chosen)):
        try:
            yield Path(chosen.folder) if chosen.folder else NO_FOLDER
        except NoSystem as error:
            name = named or contexts.current
            raise NoSystem(f"{error}; context {name} names it: `koord context use --none` leaves it") from error


def variables_of(chosen: SystemContext) -> Mapping[str, str]:
    """Returns the variables of a context's servers.

    Raises:
        KoordError: the file of variables cannot be read, or names no database.
    """
    if not chosen.env_file:
        return chosen.servers
    from cli.credentials.credentials_folder import read_env

    found = read_env(Path(chosen.env_file))
    if not found.get("KOORD_POSTGRES"):
        raise KoordError(
            f"{chosen.env_file} sets no KOORD_POSTGRES; name the file of a login, as env/operator.env of the credentials' "
            "folder, with `koord context set`"
        )
    return {name: value for name, value in found.items() if name in SERVERS}


@contextmanager
def servers_in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets the variables of servers, and removes those that are not given, for as long as the block lasts."""
    before = {name: os.environ.get(name) for name in SERVERS}
    try:
        _set({name: variables.get(name) for name in SERVERS})
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
