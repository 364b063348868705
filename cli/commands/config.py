"""`koord config`: which configuration is in force, and which was refused."""

import asyncio
from pathlib import Path

import click

from cli.commands.active_config import ConfigStatus, status_of, text_of
from cli.supervisor.log_access import log_of
from cli.terminal import name_completion
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table
from shared.kube.instants import SECOND
from shared.log.admin.session import opened


@click.group()
def config() -> None:
    """Show which configuration is in force, and which was refused."""


@config.command()
@output_option
@folder_option
def status(*, output: Format, folder: Path) -> None:
    """Show, for each context that is configured, what is in force since when, and the last one that was refused.

    A configuration that does not validate is refused with the path and the reason; the last good one stays in force.
    """
    with log_of(folder) as postgres:
        found = asyncio.run(_status(postgres))
    if output != "table":
        show(found, output)
        return
    rows = []
    for one in found:
        if one.in_force:
            taken = one.in_force
            rows.append(
                (one.context, "in force", taken.source, taken.digest[:12], taken.seq, _instant(taken.since_ns), "")
            )
        if one.refused:
            no = one.refused
            state = "refused" if no.stands else "refused earlier"
            why = ": ".join(filter(None, (no.path, no.reason)))
            rows.append((one.context, state, no.source, no.digest[:12], no.seq, _instant(no.at_ns), why))
    show_table(("context", "state", "source", "digest", "seq", "since (UTC)", "why"), rows)


@config.command(name="show")
@click.argument("context", shell_complete=name_completion.contexts)
@folder_option
def show_command(*, context: str, folder: Path) -> None:
    """Print the text of the configuration in force for CONTEXT, as it was taken over."""
    with log_of(folder) as postgres:
        text = asyncio.run(_text(postgres, context))
    click.echo(text, nl=not text.endswith("\n"))


async def _status(postgres: str) -> list[ConfigStatus]:
    async with opened(postgres) as database:
        return await status_of(database)


async def _text(postgres: str, context: str) -> str:
    async with opened(postgres) as database:
        return await text_of(database, context)


def _instant(at_ns: int) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(at_ns // SECOND, UTC):%Y-%m-%d %H:%M:%S}"
