"""`koord drain`: moves the pods of a node step by step, each to a place that is held for it."""

import asyncio
import getpass
import time
from pathlib import Path
from typing import Literal

import click
import msgspec

from cli.bus_connection import request_leading
from cli.supervisor.system_folder import find_endpoints
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_lines, show_table
from shared.errors import KoordError
from shared.events.migration import DrainEnded
from shared.kube.drain_control import SUBJECT, DrainCommand, DrainStatus
from shared.log.admin.newest_events import newest
from shared.log.admin.session import opened

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
    endpoints = find_endpoints(folder)
    found = asyncio.run(request_drain(endpoints.nats, DrainCommand(verb, node, by, reason)))
    _show(found, output, headline(found, verb))
    while watch and found.draining:
        time.sleep(WATCH_INTERVAL_S)
        found = asyncio.run(request_drain(endpoints.nats, DrainCommand("plan", node)))
        if not found.draining:
            ended = asyncio.run(_newest_end(endpoints.postgres, node))
            found = msgspec.structs.replace(found, moved=ended.moved if ended else found.moved)
        _show(found, output, headline(found, "start"))


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


async def _newest_end(postgres: str, node: str) -> DrainEnded | None:
    """Returns the newest end of a drain of a node: the descheduler keeps only drains that go on."""
    async with opened(postgres) as database:
        found = await newest(database, "descheduling", [DrainEnded], key=node)
    event = found[0].record.event if found else None
    return event if isinstance(event, DrainEnded) else None


def headline(found: DrainStatus, verb: Literal["plan", "start", "cancel"]) -> str:
    """Returns the state of a drain in a sentence.

    Args:
        verb: what was requested: the end of a drain is no news to who cancels it.
    """
    moved = f"{_pods(found.moved)} moved"
    if found.draining:
        return f"node {found.node} is being drained: {moved} so far; {_to_come(found)}"
    if verb == "plan":
        return f"node {found.node} is not being drained; if it were: {_to_come(found)}"
    early = " early" if verb == "cancel" else ""
    return f"the drain of node {found.node} has ended{early}: {moved}; the node stays cordoned"


def _to_come(found: DrainStatus) -> str:
    """Returns how many pods of the node move and stay, in words."""
    stays = sum(each.step == "stays" for each in found.pods)
    moves = len(found.pods) - stays
    if not found.pods:
        return "nothing moves, there is no pod on it"
    if not moves:
        return "nothing moves, each of its pods stays for the reason below"
    return f"{_pods(moves)} to move" + (f", {stays} that stay{'s' if stays == 1 else ''}" if stays else "")


def _pods(number: int) -> str:
    return f"{number} pod{'' if number == 1 else 's'}"


def _show(found: DrainStatus, output: Format, sentence: str) -> None:
    if output != "table":
        show(msgspec.to_builtins(found), output)
        return
    show_lines([sentence])
    if found.pods:
        show_table(("pod", "step", "reason"), [(each.pod, each.step, each.reason) for each in found.pods])
