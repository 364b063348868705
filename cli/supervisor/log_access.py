"""The log for commands that read it: of a system that runs, or of one that has been stopped."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from cli.recorded_instant import newest_instant
from cli.supervisor.gateway_trouble import warn_of_trouble
from cli.supervisor.system_folder import FolderTaken, find_endpoints, find_running, server_of, systems_in, taken
from cli.terminal.durations import second
from cli.terminal.output import show_text
from shared.errors import KoordError
from shared.log.admin.session import reading

READ_ONLY = {"default_transaction_read_only": "on"}
OTHERS_S = 30.0
"""Seconds that another command may read the log of the stopped system, or a system may take to start."""

_POLL_INTERVAL_S = 0.5


@contextmanager
def log_of(folder: Path) -> Iterator[str]:
    """Yields the URL of the database to read: KOORD_POSTGRES, else that of the system that runs in `folder` or below
    it, else that of the only system there, whose Postgres is started for as long as the context lasts.

    Commands that start it wait for each other. Once the log of a system that runs was read, the trouble of its gateway
    is printed on stderr: with every view, also one that ends in an error.

    Raises:
        KoordError: there is no system, or several, or another process holds the folder for longer than OTHERS_S.
    """
    stopped = systems_in(folder)
    if os.environ.get("KOORD_POSTGRES", "") or find_running(folder) or len(stopped) != 1:
        postgres = find_endpoints(folder).postgres
        try:
            yield postgres
        except KoordError:
            warn_of_trouble(folder)
            raise
        warn_of_trouble(folder)
        return
    from cli.embedded import EmbeddedPostgres

    [system] = stopped
    server, name = server_of(system)
    if not (server / "postgres" / "data").is_dir():
        yield find_endpoints(folder).postgres
        return
    with ExitStack() as held:
        try:
            held.enter_context(taken(server, patience_s=OTHERS_S, reader=_command()))
        except FolderTaken:
            if not find_running(folder):
                raise
            yield find_endpoints(folder).postgres  # it was starting
            return
        show_text(f"koord: no system runs in {system}; its Postgres is started to read the log", err=True)
        embedded = EmbeddedPostgres(server / "postgres", settings=READ_ONLY)
        asyncio.run(embedded.start())
        try:
            url = embedded.url_of(name) if name else embedded.url
            if ends := asyncio.run(_end_of_log(url)):
                show_text(f"koord: the log ends at {ends}; what happened in the cluster since is not in it", err=True)
            yield url
        finally:
            asyncio.run(embedded.stop())


async def _end_of_log(postgres: str) -> str:
    """Returns the instant of the newest event; empty for a log without events."""
    async with reading(postgres) as log:
        newest = await newest_instant(log)
    return second(newest) if newest else ""


def is_stopped(folder: Path) -> bool:
    """Returns whether the log is that of a stopped system, to which nothing is appended."""
    return not os.environ.get("KOORD_POSTGRES", "") and not find_running(folder)


def await_system(folder: Path) -> None:
    """Returns when a system runs in the folder or below it."""
    while not find_running(folder):
        time.sleep(_POLL_INTERVAL_S)


def _command() -> str:
    """Returns the command that runs, such as `koord get nodes`."""
    context = click.get_current_context(silent=True)
    return context.command_path if context else "koord"
