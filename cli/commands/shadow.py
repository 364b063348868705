"""`koord shadow`: what came of running beside another scheduler."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import datetime
from pathlib import Path

import click

from cli.supervisor.log_access import log_of
from cli.terminal.durations import instant_of, second
from cli.terminal.lazy_group import Group
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table, show_text
from cli.terminal.progress import progress
from cli.terminal.time_arguments import Instant
from services.scheduler.shadow.placement_comparisons_fold import NOT_COMPARED, ShadowHistory
from services.scheduler.shadow.report import ShadowReport, Worst, chosen, report
from shared.events import Event, RecordedEvent
from shared.events.cluster import InitialListCompleted
from shared.events.log import ConfigApplied, WriterStarted
from shared.events.scheduling import PlacementCompared
from shared.log.admin.session import reading
from shared.log.codec import Codec
from shared.log.position import Position
from shared.log.reader import LogReader, at_us

CONTEXT = "scheduling"

DEFAULT_SCHEDULER = "default-scheduler"


@click.group(cls=Group)
def shadow() -> None:
    """Report the comparison with another scheduler's placements."""


@shadow.command("report")
@click.option(
    "--scheduler",
    "schedulers",
    multiple=True,
    help="Only this scheduler's placements; may be repeated.  [default: all that were compared]",
)
@click.option("--since", type=Instant(), help="Only bindings from this instant on: 10m (ago), or RFC 3339.")
@click.option("--worst", type=click.IntRange(min=0), default=10, show_default=True, help="Placements to show singly.")
@output_option
@folder_option
def report_(*, schedulers: tuple[str, ...], since: datetime | None, worst: int, output: Format, folder: Path) -> None:
    """Sum up where we would have placed pods otherwise, and the differences of the scores.

    From the log alone: no service needs to run. Each placement was evaluated on the cluster as it was just before its
    binding. For the requests on the nodes, all pods are decided again in their order, each with our earlier choices in
    place of theirs: some 2 ms a pod. -o json has every node. Bindings that were not compared are counted where others
    were.
    """
    since_ns = at_us(since) * 1000 if since else 0
    with log_of(folder) as postgres:
        found = asyncio.run(_report(postgres, schedulers, since_ns, worst))
    if output == "table":
        _render(found, since)
    else:
        show(found, output)


async def _report(postgres: str, schedulers: tuple[str, ...], since_ns: int, worst: int) -> ShadowReport:
    history = ShadowHistory()
    async with reading(postgres) as log:
        configs = await _compared(log, history)
        found = chosen(history, schedulers, since_ns)
        if not found:
            return report(ShadowHistory(), {}, schedulers or (DEFAULT_SCHEDULER,))
        from services.scheduler.shadow.counterfactual_cluster import CounterfactualCluster

        counterfactual = CounterfactualCluster([one.found for one in found], configs)
        async for record in _observed(log):
            history.apply(record)
            counterfactual.apply(record)
    return report(history, counterfactual.nodes, schedulers, since_ns, worst)


async def _compared(log: LogReader, history: ShadowHistory) -> list[RecordedEvent]:
    """Folds the comparisons; returns the configurations that were in force for them."""
    configs: list[RecordedEvent] = []
    if CONTEXT not in await log.contexts():
        return configs
    # A log without any, which is found at once, is not read.
    if not [row async for row in log.rows(context=CONTEXT, kind=PlacementCompared.type_name(), newest=1)]:
        return configs
    async for record in _records(log, CONTEXT, (PlacementCompared, ConfigApplied)):
        if isinstance(record.event, ConfigApplied):
            configs.append(record)
        else:
            history.apply(record)
    return configs


async def _observed(log: LogReader) -> AsyncIterator[RecordedEvent]:
    """Yields the records that the scheduler follows besides its own log, by the time of the append."""
    from services.scheduler.service import SERVICE

    there = await log.contexts()
    follows = {name: kinds for name, kinds in SERVICE.member(0, len(there)).follows.items() if name in there}
    kept = [((await log.head(name)).seq, (await log.oldest(name) or Position()).seq) for name in follows]
    async with AsyncExitStack() as open_:
        advance = open_.enter_context(progress("reading the log", sum(head - first for head, first in kept)))
        sources = [
            await open_.enter_async_context(
                aclosing(_records(log, name, (*kinds, InitialListCompleted, WriterStarted)))
            )
            for name, kinds in follows.items()
            if name != SERVICE.writes
        ]
        heads = [(record, source) for source in sources if (record := await anext(source, None)) is not None]
        seqs: dict[str, int] = {}
        while heads:
            place = min(range(len(heads)), key=lambda place: heads[place][0].at_ns)
            record, source = heads[place]
            yield record
            advance(record.seq - seqs.get(record.context, record.seq - 1))
            seqs[record.context] = record.seq
            following = await anext(source, None)
            heads[place : place + 1] = [] if following is None else [(following, source)]


async def _records(log: LogReader, context: str, kinds: Sequence[type[Event]]) -> AsyncGenerator[RecordedEvent, None]:
    """Yields a context's events of these types, from the oldest that is kept."""
    begin, head = await log.oldest(context) or Position(), await log.head(context)
    async with aclosing(log.pages(context, begin, head.seq, Codec(list(dict.fromkeys(kinds))))) as pages:
        async for page in pages:
            for record in page.records:
                yield record


def _render(found: ShadowReport, since: datetime | None) -> None:
    whose = ", ".join(found.schedulers)
    if not found.compared:
        show_text(
            f"no placement of {whose} was compared since {second(since)}; an earlier --since may show some"
            if since
            else f"no placement of {whose} was compared; docs/shadow.md says how to run beside it"
        )
    else:
        show_text(
            f"{found.compared:,} placements of {whose}, evaluated by our profile {', '.join(found.profiles)}, "
            f"{instant_of(found.first_ns)} to {instant_of(found.last_ns)}\n"
        )
        gap = f"lower by {found.gap.p50} (p50), {found.gap.p90} (p90), {found.gap.max} (max)"
        rows = [
            ("the node we would have chosen", found.same_node, ""),
            ("another node with the same score", found.equal_score, ""),
            ("another node with a lower score", found.lower_score, gap if found.lower_score else ""),
            ("a node that our filters reject", found.refused, ""),
            ("any node, where our filters reject all", found.found_none, ""),
        ]
        show_table(
            ("they chose", "pods", "share", ""),
            [(what, f"{pods:,}", f"{100 * pods / found.compared:.1f} %", more) for what, pods, more in rows],
        )
    if found.not_compared:
        click.echo()
        rows_missed = [(f"{pods:,}", NOT_COMPARED.get(why, why)) for why, pods in found.not_compared.items()]
        show_table(("not compared", "because"), rows_missed)
    if found.refused_by:
        click.echo()
        show_table(
            ("refused by", "reason", "pods", "for example"),
            [(one.plugin or "-", _reason(one.text, one.detail), one.pods, one.example) for one in found.refused_by],
        )
    if found.compared:
        click.echo("\nrequested on the nodes, percent of allocatable:")
        show_table(("resource", "placed by", "max", "mean", "stddev"), _balance_rows(found))
    for one in found.worst:
        _render_worst(one)


def _reason(text: str, detail: str) -> str:
    return f"{text} ({detail})" if detail and detail not in text else text


def _balance_rows(found: ShadowReport) -> Iterator[tuple[object, ...]]:
    for balance in found.balance:
        for whose, spread in (("them", balance.theirs), ("us", balance.ours)):
            numbers = (spread.max_percent, spread.mean_percent, spread.stddev_percent)
            yield balance.resource, whose, *(f"{number:.2f}" for number in numbers)


def _render_worst(one: Worst) -> None:
    show_text(f"\n{one.pod} at {instant_of(one.at_ns)} ({one.event}): {one.gap} below ours")
    for mark, node, score, parts in (
        ("theirs", one.theirs, one.their_score, one.their_parts),
        ("ours  ", one.ours, one.score, one.parts),
    ):
        listed = ", ".join(f"{plugin} {part}" for plugin, part in parts.items())
        show_text(f"  {mark} {node}: {score} ({listed})")
