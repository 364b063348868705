"""`koord doctor`: what is wrong, and what to do."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from cli.doctor.all_checks import examine
from cli.doctor.finding import SEVERITIES, Finding
from cli.supervisor.system_folder import find_endpoints
from cli.terminal.awaited import Awaited, shown
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, broken, show, show_lines
from shared.errors import KoordError

_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan", "ok": "green"}


class Ill(KoordError):
    """The doctor found errors."""


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Show what is in order, too.")
@output_option
@folder_option
def doctor(*, verbose: bool, output: Format, folder: Path) -> None:
    """Say what is wrong with an installation, and what to do about it.

    Looks at the servers, this login, the services and how far they are behind, their configuration, the gateway's
    permissions, the clocks, the disk and the node agents. The exit code is 1 when something does not work.
    """
    found = asyncio.run(_found(folder))
    found.sort(key=lambda one: SEVERITIES.index(one.severity))
    if output == "table":
        _print(found, verbose=verbose)
    else:
        show(found, output)
    if errors := sum(one.severity == "error" for one in found):
        raise Ill(f"{errors} error{'s' if errors > 1 else ''} found")


async def _found(folder: Path) -> list[Finding]:
    awaited = Awaited()
    async with shown(awaited):
        return await examine(find_endpoints(folder), folder, awaited)


def _print(found: Sequence[Finding], *, verbose: bool) -> None:
    """Prints findings as paragraphs: the fault, and below it the remedy.

    Passed checks are only counted, except with --verbose.
    """
    for one in found:
        if one.severity == "ok" and not verbose:
            continue
        first, *rest = broken(f"{(word := one.severity.upper())} {one.area}: {one.what}")
        coloured = click.style(word, fg=_COLOURS[one.severity], bold=True)
        click.echo("\n".join([first.replace(word, coloured, 1), *rest]))
        if one.do:
            show_lines([f"    do: {one.do}"])
    counts = Counter(one.severity for one in found)
    shown = [f"{counts[name]} {name}{'s' if counts[name] != 1 else ''}" for name in SEVERITIES if name != "ok"]
    in_order = counts["ok"]
    click.echo(f"{', '.join(shown)}; {in_order} check{'' if in_order == 1 else 's'} in order")
