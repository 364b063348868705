"""`koord migrate`: the schema, before services of a new release start."""

import asyncio
from pathlib import Path

import click

from cli.supervisor.system_folder import find_owner
from cli.supervisor.system_servers import migrate_to_this_release
from cli.terminal.options import folder_option


@click.command()
@folder_option
def migrate(folder: Path) -> None:
    """Bring the database to this release's schema.

    Roles that are there (`koord credentials postgres`) get the rights of this release. KOORD_POSTGRES must be the
    owner's login: services, the operator and the auditor own nothing. Safe to repeat, and to run from several places at
    once. `koord up` does it by itself.
    """
    asyncio.run(migrate_to_this_release(find_owner(folder)))
    click.echo("the database has this release's schema")
