"""`koord drain`: moves the pods of a node step by step, each to a place that is held for it."""

import asyncio
import getpass
from pathlib import Path
from typing import Literal

import click
import msgspec

from cli.bus_connection import request_leading
from cli.supervisor.system_folder import find_endpoints
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table
from shared.errors import KoordError
from shared.kube.drain_control import SUBJECT, DrainCommand, DrainStatus

WATCH_INTERVAL_S = 2.0


@click.command()
@click.argument("node")
@click.option("--dry-run", is_flag=True, help="Show which pods would move, wait or stay; nothing changes.")
@click.option("--watch", is_flag=True, help="Show the progress until the drain has ended.")
@click.option("--cancel", is_flag=True, help="End the drain. Jobs that began go on; the node stays cordoned.")
@click.option("--reason", default="", help="Why; recorded with the drain.")
@click.option("--by", default=getpass.getuser, show_default="you", help="Who decides.")
@output_option
@folder_option
def drain(
    node: str, *, dry_run: bool, watch: bool, cancel: bool, reason: str, by: str, output: Format, folder: Path
) -> None:
    """Drain NODE: cordon it, and move its pods one after the other.

    Each pod moves by a PodMigrationJob within the limits of its workload and its disruption budgets. Pods that may not
    move stay, with the reason.
    """
    if dry_run + watch + cancel > 1:
        raise click.UsageError("give one of --dry-run, --watch and --cancel")
    verb: Literal["plan", "start", "cancel"] = "plan" if dry_run else "cancel" if cancel else "start"
    nats = find_endpoints(folder).nats
    found = asyncio.run(request_drain(nats, DrainCommand(verb, node, by, reason)))
    _show(found, output)
    while watch and found.draining:
        asyncio.run(asyncio.sleep(WATCH_INTERVAL_S))
        found = asyncio.run(request_drain(nats, DrainCommand("plan", node)))
        _show(found, output)


async def request_drain(nats: str, command: DrainCommand) -> DrainStatus:
    """Sends a request to the descheduler that leads; a drain is recorded when this returns.

    Raises:
        KoordError: none responds, or it cannot meet the request.
    """
    answer = await request_leading(nats, "koord drain", "descheduler", SUBJECT, msgspec.json.encode(command))
    found = msgspec.json.decode(answer, type=DrainStatus)
    if found.fault:
        raise KoordError(found.fault)
    return found


def _show(found: DrainStatus, output: Format) -> None:
    if output != "table":
        show(msgspec.to_builtins(found), output)
        return
    rows = [("draining", "yes" if found.draining else "no", ""), ("moved", str(found.moved), "")]
    show_table((f"node {found.node}", "", ""), [*rows, *((each.pod, each.step, each.reason) for each in found.pods)])
