"""`koord evictions`: the gateway's budget of evictions, and the switch that holds them."""

import asyncio
import getpass
from pathlib import Path

import click
import msgspec

from cli.bus_connection import request_leading, require_gateway
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.gateway_trouble import warn_of_trouble
from cli.supervisor.system_folder import find_endpoints
from cli.terminal.lazy_group import Group
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table
from shared.kube.eviction_control import SUBJECT, EvictionCommand, EvictionStatus


@click.group(cls=Group)
def evictions() -> None:
    """Show, hold and release the evictions of all services."""


@evictions.command()
@output_option
@folder_option
def status(*, output: Format, folder: Path) -> None:
    """Show whether evictions are held, and which wait for budget."""
    _show(_requested(folder, EvictionCommand("status")), output)


@evictions.command()
@click.option("--reason", required=True, help="Why; recorded with the hold.")
@click.option("--by", default=getpass.getuser, show_default="you", help="Who decides.")
@output_option
@folder_option
def hold(*, reason: str, by: str, output: Format, folder: Path) -> None:
    """Hold all evictions until they are released. None is lost: each waits, and has its outcome later."""
    _show(_requested(folder, EvictionCommand("hold", by, reason)), output)


@evictions.command()
@click.option("--reason", required=True, help="Why; recorded with the release.")
@click.option("--by", default=getpass.getuser, show_default="you", help="Who decides.")
@output_option
@folder_option
def release(*, reason: str, by: str, output: Format, folder: Path) -> None:
    """End a hold, of an operator or of the breaker. The budgets begin anew."""
    _show(_requested(folder, EvictionCommand("release", by, reason)), output)


def _requested(folder: Path, command: EvictionCommand) -> EvictionStatus:
    endpoints = find_endpoints(folder)

    async def request() -> EvictionStatus:
        await require_gateway(endpoints)
        return await request_evictions(endpoints, command)

    found = asyncio.run(request())
    warn_of_trouble(folder)
    return found


async def request_evictions(endpoints: Endpoints, command: EvictionCommand) -> EvictionStatus:
    """Sends a request to the gateway that leads; a hold or a release is recorded when this returns.

    Raises:
        KoordError: none responds.
    """
    answer = await request_leading(endpoints, "koord evictions", "gateway", SUBJECT, msgspec.json.encode(command))
    return msgspec.json.decode(answer, type=EvictionStatus)


def _show(found: EvictionStatus, output: Format) -> None:
    if output != "table":
        show(msgspec.to_builtins(found), output)
        return
    held = f"by {found.held_by}: {found.held_reason}" if found.held_by else "no"
    rows = [
        ("held", held),
        (f"evicted in {found.window_s:.0f} s", f"{found.evicted} of {found.limit}"),
        ("waiting", str(found.waiting)),
    ]
    rows += [(each.intent, f"{each.pod}: {each.reason}") for each in found.paused]
    show_table(("evictions", ""), rows)
