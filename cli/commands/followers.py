"""`koord followers`: who follows the logs, and how far they are."""

import asyncio
from pathlib import Path

import click

from cli.supervisor.log_access import log_of
from cli.supervisor.system_folder import find_endpoints
from cli.terminal import name_completion
from cli.terminal.durations import second
from cli.terminal.lazy_group import Group
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table
from shared.errors import KoordError
from shared.log.admin.followers import FollowerSeen, list_followers
from shared.log.admin.session import opened
from shared.log.service_store import ServiceStore


@click.group(cls=Group)
def followers() -> None:
    """Show who follows the logs, and forget who no longer does."""


@followers.command(name="list")
@output_option
@folder_option
def list_command(*, output: Format, folder: Path) -> None:
    """Show each follower: how far it was when it was last seen."""
    with log_of(folder) as postgres:
        found = asyncio.run(_list(postgres))
    if output != "table":
        show([one._asdict() for one in found], output)
        return
    rows = [(one.service, _positions(one), second(one.seen_at)) for one in found]
    show_table(("service", "folded to", "seen at"), rows)


@followers.command()
@click.argument("service", shell_complete=name_completion.followers)
@folder_option
def forget(*, service: str, folder: Path) -> None:
    """Drop a follower that is gone for good.

    A writer refuses to start while a registered follower could not read what it writes. One that is not seen for 7 days
    is forgotten by itself; one that still runs registers again.
    """
    if not asyncio.run(_forget(find_endpoints(folder).postgres, service)):
        raise KoordError(f"no follower {service!r} is registered; `koord followers list` shows those that are")
    click.echo(f"Follower {service} is forgotten; one that still runs registers again within seconds.")


async def _list(postgres: str) -> list[FollowerSeen]:
    async with opened(postgres) as database:
        return await list_followers(database)


async def _forget(postgres: str, service: str) -> bool:
    async with opened(postgres) as database:
        return await ServiceStore(database, service).forget()


def _positions(one: FollowerSeen) -> str:
    return " ".join(f"{context}/{seq}" for context, seq in sorted(one.positions.items()))
