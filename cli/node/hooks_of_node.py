"""`koord node hooks`: whether each container of a node started with the values of its runtime hooks."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import msgspec

from cli.scheduling.recorded_state import scheduler_state
from cli.supervisor.log_access import log_of
from cli.terminal import name_completion
from cli.terminal.durations import age, instant_of
from cli.terminal.lazy_group import Group
from cli.terminal.object_name import cluster_name
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table, show_text
from shared.closest_name import did_you_mean
from shared.errors import KoordError
from shared.events import RecordedEvent
from shared.events.nodes import ContainerHooksReported, HookedContainer
from shared.log.admin.newest_events import newest
from shared.log.admin.session import reading
from shared.log.reader import LogReader

MOST_EVENTS = 2_000
"""Newest reports of the node's agent that are read."""
WORDS = {"applied": "applied", "repaired": "repaired", "notApplied": "not applied"}
NO_RECORD = (
    "no container of node {node} has a record of its hooks: its agent has not reported any yet; `koord get nodes` shows "
    "whether it reports, and `koord run node-agent` runs one. An agent with KOORD_NODE_AGENT_ENFORCE=false keeps none"
)


class HooksOfContainer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One container.

    Attributes:
        pod: `namespace/name`; state, route, hooks, failed, after_ms: as `HookedContainer` has them.
        at: its creation, or the instant at which the agent found it.
        event: `context/seq` of the record in force.
    """

    pod: str
    container: str
    container_id: str
    state: str
    at: str
    event: str
    route: str = ""
    hooks: tuple[str, ...] = ()
    failed: dict[str, str] = msgspec.field(default_factory=dict)
    after_ms: int | None = None


class HooksOfNode(msgspec.Struct, frozen=True):
    """The content of `koord node hooks -o json`: containers, the newest first, and their number by state."""

    node: str
    counts: dict[str, int]
    containers: tuple[HooksOfContainer, ...]


@click.group(cls=Group)
def node() -> None:
    """Show what the agent of a node did to its containers."""


@node.command
@cluster_name(name_completion.nodes)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Containers at most.")
@output_option
@folder_option
def hooks(*, name: str, limit: int, output: Format, folder: Path) -> None:
    """Show whether each container of a node started with the values of its hooks.

    Applied: it had them before its program's first instruction. Repaired: it ran without some of them for so long. Not
    applied: it has run without those that are named, so far or to its end. The newest container comes first.
    """
    with log_of(folder) as postgres:
        found = asyncio.run(_read(postgres, name, limit))
    if output != "table":
        show(found, output)
        return
    show_text(_summary(found))
    if found.containers:
        click.echo()
        show_table(("pod", "container", "route", "state", "hooks", "at"), map(_row, found.containers))


async def _read(postgres: str, name: str, limit: int) -> HooksOfNode:
    async with reading(postgres) as log:
        records = [
            each.record
            for context in await log.contexts()
            if context.startswith("nodes-")
            for each in await newest(log.database, context, [ContainerHooksReported], MOST_EVENTS, key=name)
        ]
        if not records:
            await _require_node(log, name)
    return hooks_of_node(name, records, limit)


async def _require_node(log: LogReader, name: str) -> None:
    known = (await scheduler_state(log)).nodes
    if name not in known:
        raise KoordError(
            f"there is no node {name!r}{did_you_mean(name, known)}; `koord get nodes` shows those there are"
        )


def hooks_of_node(node: str, records: Iterable[RecordedEvent], limit: int) -> HooksOfNode:
    """Returns the record in force of each container.

    Args:
        records: ContainerHooksReported of the node in any order: after a change of shards several contexts have some.
            The agent's newest counts.
        limit: containers at most; the counts are of all.
    """
    found: dict[str, tuple[HookedContainer, RecordedEvent]] = {}
    for event, record in sorted(
        map(_reported, records), key=lambda pair: (pair[0].at_ns, pair[0].number), reverse=True
    ):
        for each in event.containers:
            found.setdefault(each.container_id, (each, record))
    ordered = sorted(found.values(), key=lambda pair: (-pair[0].at_ns, pair[0].container_id))
    counts = Counter(each.state for each, _ in ordered)
    containers = tuple(_of_container(each, record) for each, record in ordered[:limit])
    return HooksOfNode(node, {state: counts[state] for state in WORDS}, containers)


def _reported(record: RecordedEvent) -> tuple[ContainerHooksReported, RecordedEvent]:
    assert isinstance(record.event, ContainerHooksReported)
    return record.event, record


def _of_container(each: HookedContainer, record: RecordedEvent) -> HooksOfContainer:
    return HooksOfContainer(
        pod=each.pod,
        container=each.container,
        container_id=each.container_id,
        state=each.state,
        at=instant_of(each.at_ns),
        event=f"{record.context}/{record.seq}",
        route=each.route,
        hooks=each.hooks,
        failed=each.failed,
        after_ms=each.after_ms,
    )


def _summary(found: HooksOfNode) -> str:
    total = sum(found.counts.values())
    if not total:
        return NO_RECORD.format(node=found.node)
    counts = ", ".join(f"{count} {WORDS[state]}" for state, count in found.counts.items())
    shown = len(found.containers)
    more = f"; the newest {shown} are shown, --limit shows more" if shown < total else ""
    return f"{found.node}: {total} container{'' if total == 1 else 's'}: {counts}{more}"


def _row(each: HooksOfContainer) -> Sequence[str]:
    state = WORDS[each.state]
    if each.after_ms is not None:
        state = f"{state} after {age(each.after_ms / 1000)}"
    texts = [", ".join(each.hooks)] if each.hooks else []
    texts += [f"without {name}: {reason}" for name, reason in each.failed.items()]
    return (each.pod, each.container, each.route or "-", state, "; ".join(texts) or "-", each.at)
