"""`koord drain`: moves the pods of a node step by step, each to a place that is held for it."""

import asyncio
import getpass
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import click
import msgspec
from msgspec.structs import replace

from cli.bus_connection import LOG_S, request_leading
from cli.node.drains_of_node import LastDrain, counted, drains_of, last_drain, outcome_lines, pods, uncordon
from cli.simulated_cluster import is_simulated
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.gateway_trouble import warn_of_trouble
from cli.supervisor.system_folder import find_endpoints
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_lines, show_table
from shared.errors import KoordError
from shared.kube.drain_control import SUBJECT, DrainCommand, DrainStatus
from shared.log.admin.session import reading

WATCH_INTERVAL_S = 2.0

_WITHDRAWN = ", and this drain does not cordon it any more"

Verb = Literal["plan", "start", "cancel", "ended"]
"""The request that is answered; `ended`: a drain that was watched is over."""


class FromLog(NamedTuple):
    """Facts of the log about the drains of a node; a command goes on without them."""

    last: LastDrain | None = None
    simulated: bool = False


@click.command()
@click.argument("node")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the drain that goes on, or which pods would move, wait or stay, and the outcome of the last drain; "
    "nothing changes.",
)
@click.option("--watch", is_flag=True, help="Show each change until the drain has ended.")
@click.option("--cancel", is_flag=True, help="End the drain. Jobs that began go on; a cordoned node stays so.")
@click.option("--reason", default="", help="Why; recorded with the drain.")
@click.option("--by", default=getpass.getuser, show_default="you", help="Who decides.")
@output_option
@folder_option
def drain(
    node: str, *, dry_run: bool, watch: bool, cancel: bool, reason: str, by: str, output: Format, folder: Path
) -> None:
    """Drain NODE: cordon it, and move its pods one after the other.

    Each pod moves by a PodMigrationJob within the limits of its workload and its disruption budgets. Pods that may not
    move stay, with the reason. To look at a drain without a change: --dry-run.
    """
    if dry_run + watch + cancel > 1:
        raise click.UsageError("give one of --dry-run, --watch and --cancel")
    verb: Literal["plan", "start", "cancel"] = "plan" if dry_run else "cancel" if cancel else "start"
    endpoints = find_endpoints(folder)
    found = asyncio.run(request_drain(endpoints, DrainCommand(verb, node, by, reason)))
    log = asyncio.run(_from_log(endpoints.postgres, node))
    warn_of_trouble(folder)
    if found.fault:
        raise KoordError("; ".join((found.fault, *(how_it_ended(node, log) if cancel else ()))))
    _show(found, output, verb, log)
    shown = found
    while watch and found.draining:
        time.sleep(WATCH_INTERVAL_S)
        found = asyncio.run(request_drain(endpoints, DrainCommand("plan", node)))
        if found.fault:
            raise KoordError(found.fault)
        if not found.draining:
            log = asyncio.run(_from_log(endpoints.postgres, node))
            if log.last is not None and (ended := log.last.ended) is not None:
                found = replace(found, moved=ended.moved, evicted=ended.evicted)
        if found != shown:
            _show(found, output, "start" if found.draining else "ended", log)
        shown = found


async def request_drain(endpoints: Endpoints, command: DrainCommand) -> DrainStatus:
    """Sends a request to the descheduler that leads; a drain is recorded when this returns.

    Raises:
        KoordError: none responds.
    """
    answer = await request_leading(endpoints, "koord drain", "descheduler", SUBJECT, msgspec.json.encode(command))
    return msgspec.json.decode(answer, type=DrainStatus)


async def _from_log(postgres: str, node: str) -> FromLog:
    with suppress(KoordError, TimeoutError):
        async with asyncio.timeout(LOG_S), reading(postgres) as log:
            return FromLog(last_drain(await drains_of(log, node)), await is_simulated(log.database))
    return FromLog()


def how_it_ended(node: str, log: FromLog) -> tuple[str, ...]:
    """Returns why there is no drain to cancel: how the last one ended; nothing without one."""
    if log.last is None or log.last.ended is None:
        return ()
    outcome = "; ".join(line.strip() for line in outcome_lines(log.last, node))
    return outcome, f"if the node is still cordoned, {uncordon(node, simulated=log.simulated)} gives it back"


def headline(found: DrainStatus, verb: Verb) -> str:
    """Returns the state of a drain in a sentence."""
    left = counted(found.moved, found.evicted)
    if found.draining:
        return f"node {found.node} is being drained: {left} so far; {_to_come(found)}{_next(found)}"
    if verb == "plan":
        return f"node {found.node} is not being drained; if it were: {_to_come(found)}"
    if verb == "start":
        return f"no drain of node {found.node} begins: it is cordoned already, and {_to_come(found)}"
    moving = sum(each.step == "moves" for each in found.pods)
    goes_on = f"; jobs that began go on for {pods(moving)}" if moving else ""
    early = " early" if verb == "cancel" else ""
    cordon = "the node stays cordoned" if found.cordoned else f"the node is not cordoned{_WITHDRAWN if early else ''}"
    return f"the drain of node {found.node} has ended{early}: {left}{goes_on}; {cordon}"


def _next(found: DrainStatus) -> str:
    """Returns what a drain waits for, and when it ends; empty for one that moves pods."""
    if all(each.step == "stays" for each in found.pods):
        instant = "at once" if found.cordoned else "once the node is cordoned"
        return f"; it ends by itself {instant}: `koord drain {found.node} --dry-run` shows the outcome"
    return (
        "" if found.cordoned else f"; it goes on once the node is cordoned: `koord drain {found.node} --cancel` ends it"
    )


def _to_come(found: DrainStatus) -> str:
    """Returns how many pods of the node move and stay, in words."""
    stays = sum(each.step == "stays" for each in found.pods)
    moves = len(found.pods) - stays
    if not found.pods:
        return "nothing moves, there is no pod on it"
    if not moves:
        return "nothing moves, each of its pods stays for the reason below"
    return f"{pods(moves)} to move" + (f", {stays} that stay{'s' if stays == 1 else ''}" if stays else "")


def _after(found: DrainStatus, verb: Verb, log: FromLog) -> list[str]:
    """Returns the outcome of the last drain for one that looks, and how to end the cordon once no drain goes on."""
    if found.draining:
        return []
    lines = list(outcome_lines(log.last, found.node)) if log.last is not None and verb in ("plan", "start") else []
    if found.cordoned:
        lines.append(f"the node is cordoned; {uncordon(found.node, simulated=log.simulated)} gives it back")
    return lines


def _show(found: DrainStatus, output: Format, verb: Verb, log: FromLog) -> None:
    if output != "table":
        ended = log.last.ended if log.last is not None and not found.draining else None
        show(msgspec.to_builtins(found) | {"last_drain": msgspec.to_builtins(ended)}, output)
        return
    show_lines([headline(found, verb)])
    if found.pods:
        show_table(("pod", "step", "reason"), [(each.pod, each.step, each.reason) for each in found.pods])
    show_lines(_after(found, verb, log))
