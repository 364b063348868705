"""`koord explain node`: from a node's capacity to its batch and mid resources, at any time in the log."""

import asyncio
from datetime import datetime
from pathlib import Path

import click
import msgspec

from cli.node.ignored_reports import CONTEXT, describe_ignored, ignored_reports_of, remedy_of
from cli.node.overcommitment_in_force import overcommitment_of
from cli.recorded_instant import require_past
from cli.scheduling.recorded_state import scheduler_state
from cli.simulated_cluster import is_simulated
from cli.supervisor.log_access import log_of
from cli.terminal import name_completion
from cli.terminal.durations import instant
from cli.terminal.object_name import cluster_name
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table, show_text
from cli.terminal.time_arguments import at_option
from services.slo_controller.overcommit.explain import ResourceExplanation, Step
from services.slo_controller.overcommit.explain import explain as steps_of
from shared.closest_name import did_you_mean
from shared.errors import KoordError
from shared.events.cluster import NodeObserved
from shared.events.slo import NodeOvercommitted
from shared.kube.instants import SECOND, instant_text
from shared.kube.quantity import bytes_text
from shared.log.database import Database
from shared.log.reader import LogReader


class NodeExplained(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of `koord explain node -o json`.

    Attributes:
        event: `slo/SEQ` of the decision.
        decided, report: instants; report is empty without one.
        why: the reason of the write.
        annotations: the node's annotations that were written with its amounts.
        ignored, remedy: what is wrong with reports that are ignored, since when, and what to do.
    """

    node: str
    event: str
    decided: str
    why: str
    report: str = ""
    source: str = ""
    resources: tuple[ResourceExplanation, ...] = ()
    annotations: dict[str, str | None] = msgspec.field(default_factory=dict)
    others: dict[str, str | None] = msgspec.field(default_factory=dict)
    problems: tuple[str, ...] = ()
    ignored: str = ""
    remedy: str = ""


@click.command
@cluster_name(name_completion.nodes)
@at_option
@output_option
@folder_option
def explain(*, name: str, at: datetime | None, output: Format, folder: Path) -> None:
    """Add up the terms of a node's batch and mid resources.

    From the log alone, at any instant in it.
    """
    with log_of(folder) as postgres:
        found = asyncio.run(_read(postgres, name, at))
    if output != "table":
        show(found, output)
        return
    _print(found)


async def _read(postgres: str, name: str, at: datetime | None) -> NodeExplained:
    database = Database(postgres)
    try:
        return await explained(LogReader(database), name, at)
    finally:
        await database.close()


async def explained(log: LogReader, name: str, at: datetime | None = None) -> NodeExplained:
    """Returns the decision in force on a node.

    Raises:
        KoordError: there was none, or the log does not reach back or forward so far.
    """
    await require_past(log, at)
    newest: tuple[int, bytes] | None = None
    if CONTEXT in await log.contexts():
        kind, limit = "NodeOvercommitted", None if at is not None else 1
        async for row in log.rows(context=CONTEXT, kind=kind, key=name, newest=limit):
            if at is None or row.at <= at:
                newest = row.seq, row.data
    ignored = await ignored_reports_of(log, name, at) if CONTEXT in await log.contexts() else None
    remedy = remedy_of(ignored, simulated=await is_simulated(log.database)) if ignored else ""
    if newest is None:
        also = f"; {describe_ignored(ignored)}; {remedy}" if ignored else ""
        raise KoordError(await _why_nothing(log, name, at) + also)
    seq, data = newest
    decided = msgspec.json.decode(data, type=NodeOvercommitted)
    resources = steps_of(decided)
    shown = {each.resource for each in resources}
    return NodeExplained(
        node=name,
        event=f"{CONTEXT}/{seq}",
        decided=instant_text(decided.decided_ns // SECOND * SECOND),
        why=decided.why,
        report=instant_text(decided.report_ns // SECOND * SECOND) if decided.report_ns else "",
        source=decided.source,
        resources=resources,
        annotations=decided.annotations,
        others={resource: size for resource, size in decided.amounts.items() if resource not in shown and size},
        problems=decided.problems,
        ignored=describe_ignored(ignored) if ignored else "",
        remedy=remedy,
    )


NO_REPORT = """\
batch and mid resources are what a report leaves unused; this node has no report in force
    do: run `koord run node-agent` on it, or have koordlet write its NodeMetric"""


async def _why_nothing(log: LogReader, name: str, at: datetime | None) -> str:
    if "cluster" in await log.contexts():
        async for row in log.rows(context="cluster", kind="NodeObserved", key=name, newest=1):
            if at is not None:
                return f"node {name}: nothing was decided before {instant(at)}; see `koord events --key {name}`"
            node = msgspec.json.decode(row.data, type=NodeObserved).object.metadata
            why = await overcommitment_of(log.database, node)
            return f"node {name}: no batch or mid resources were decided yet: {why}"
    there = (await scheduler_state(log)).nodes
    return f"there is no node {name!r}{did_you_mean(name, there)}; `koord get nodes` shows those there are"


def _print(found: NodeExplained) -> None:
    basis = f"by a report of {found.report} ({found.source})" if found.report else "without a usage report"
    show_text(f"{found.node}: decided {found.decided} ({found.event}, {found.why}), {basis}")
    if not found.report and not found.ignored:
        show_text(NO_REPORT)
    if found.ignored:
        show_text(f"{found.ignored}\n    do: {found.remedy}")
    for resource in found.resources:
        click.echo()
        if not resource.steps:
            click.echo(f"{resource.resource}: {resource.quantity or 'none'}")
            continue
        is_memory = resource.resource.endswith("memory")
        rows = [(step.sign, step.name, _amount(step, is_memory=is_memory), step.remark) for step in resource.steps]
        click.echo(resource.resource)  # as it is written: the heads of tables are in capitals
        show_table(("", "term", "bytes" if is_memory else "milli-cores", ""), rows)
        if not resource.adds_up:
            show_text("the steps do not add up to the amount: please report this event")
    if found.others:
        click.echo()
        show_table(("resource", "amount"), found.others.items())
    for problem in found.problems:
        show_text(f"problem: {problem}")


def _amount(step: Step, *, is_memory: bool) -> str:
    """Returns an amount with thousands separated; bytes also in a larger unit if that is a round number."""
    short = bytes_text(step.amount) if is_memory else ""
    return f"{step.amount:,} ({short})" if short.endswith("i") else f"{step.amount:,}"
