"""The log for commands that read it: of a system that runs, or of one that has been stopped."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from cli.supervisor.system_folder import find_endpoints, find_running, server_of, systems_in, taken

READ_ONLY = {"default_transaction_read_only": "on"}


@contextmanager
def log_of(folder: Path) -> Iterator[str]:
    """Yields the URL of the database to read: KOORD_POSTGRES, else that of the system that runs in `folder` or below
    it, else that of the only system there, whose Postgres is started for as long as the context lasts.

    Raises:
        KoordError: there is no system, or several.
    """
    stopped = systems_in(folder)
    if os.environ.get("KOORD_POSTGRES", "") or find_running(folder) or len(stopped) != 1:
        yield find_endpoints(folder).postgres
        return
    from cli.embedded import EmbeddedPostgres

    [system] = stopped
    server, name = server_of(system)
    if not (server / "postgres" / "data").is_dir():
        yield find_endpoints(folder).postgres
        return
    with taken(server):
        click.echo(f"koord: no system runs in {system}; its Postgres is started to read the log", err=True)
        postgres = EmbeddedPostgres(server / "postgres", settings=READ_ONLY)
        asyncio.run(postgres.start())
        try:
            yield postgres.url_of(name) if name else postgres.url
        finally:
            asyncio.run(postgres.stop())
