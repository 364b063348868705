"""`koord events`: the log as it is stored."""

import asyncio
import shutil
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from cli.commands.parked_events import parked, skip
from cli.supervisor.log_access import await_system, is_stopped, log_of
from cli.terminal import name_completion
from cli.terminal.choice import check_event_type, chosen_contexts
from cli.terminal.durations import instant
from cli.terminal.lazy_group import Group
from cli.terminal.object_name import full_name
from cli.terminal.options import folder_option, outputs
from cli.terminal.output import BELOW, LEAST, Format, show_one_of_many, show_table, show_text
from cli.terminal.time_arguments import Instant
from shared.errors import KoordError
from shared.log.admin.session import reading
from shared.log.reader import LogReader, Row

POLL_INTERVAL_S = 0.5
TABLE_ROWS = 500
_COLUMNS = ("at", "event", "type", "key", "cause", "data")


class Filters(NamedTuple):
    """Which events to show; None is no restriction."""

    context: str | None
    kind: str | None
    key: str | None
    since: datetime | None
    until: datetime | None
    namespace: str | None = None


class _Events(Group):
    """`koord events`: an object is selected by an option."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the sub-command.

        Raises:
            UsageError: there is none of this name; it may be that of an object.
        """
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"`koord events` has no command {args[0]!r}; for the events about an object: --key {args[0]}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Events, invoke_without_command=True)
@click.option(
    "--log",
    "context",
    metavar="LOG",
    help="Only this log, such as cluster or scheduling.",
    shell_complete=name_completion.contexts,
)
@click.option(
    "--type",
    "kind",
    help="Only this type; the end of its name is enough: PodPlaced, PodPlaced.v1.",
    shell_complete=name_completion.event_types,
)
@click.option(
    "--key", help="Only events about this object: NAMESPACE/NAME, or a NAME.", shell_complete=name_completion.keys
)
@click.option("-n", "--namespace", help="Only events about objects of this namespace.")
@click.option("--since", type=Instant(), help="Only events from this instant on: 10m (ago), or RFC 3339.")
@click.option("--until", type=Instant(), help="Only events up to this instant: 10m (ago), or RFC 3339.")
@click.option(
    "--last",
    type=click.IntRange(min=0),
    help="Only the newest so many; 0 is all.  [default: 50, all with --since]",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with new events until Ctrl-C.")
@outputs("table", "wide", "json", "yaml")
@folder_option
@click.pass_context
def events(
    ctx: click.Context,
    *,
    context: str | None,
    kind: str | None,
    key: str | None,
    namespace: str | None,
    since: datetime | None,
    until: datetime | None,
    last: int | None,
    follow: bool,
    output: Format,
    folder: Path,
) -> None:
    """Show events of the log, oldest first.

    With -o json each event is a line of its own, with its whole data, its digest and the event that caused it. A table
    on a terminal cuts the data at the terminal's width; -o wide does not.
    """
    if ctx.invoked_subcommand:
        return
    if follow and until:
        raise click.UsageError("--follow has no end, and --until is one; give one of them")
    if since and until and since > until:
        raise click.UsageError(f"--since {instant(since)} is later than --until {instant(until)}")
    newest = (0 if since else 50) if last is None else last
    filters = Filters(context, kind, full_name(key, namespace) if key and namespace else key, since, until, namespace)
    with log_of(folder) as postgres:
        is_written = follow and not is_stopped(folder)
        begin = asyncio.run(_events(postgres, filters, newest, output, titles=follow, follow=is_written))
    if follow and not is_written:
        show_text("koord: nothing is appended while no system runs; events follow from its start on", err=True)
        await_system(folder)
        with log_of(folder) as postgres:
            asyncio.run(_followed(postgres, begin, output))


events.add_command(parked)
events.add_command(skip)


class _Shown(NamedTuple):
    """The end of what was shown: the filters with the whole key, and context -> seq of the last event that was looked at."""

    filters: Filters
    heads: dict[str, int]


async def _events(
    postgres: str, filters: Filters, newest: int, output: Format, *, titles: bool, follow: bool
) -> _Shown:
    """Shows the events that are there, and then those that follow.

    Args:
        titles: print those of a table without rows too.
    """
    async with reading(postgres) as log:
        contexts = chosen_contexts(await log.contexts(), filters.context)
        if filters.kind:
            check_event_type(filters.kind)
        if filters.key:
            filters = filters._replace(key=await _known_key(log, contexts, filters.key))
        heads = {name: (await log.head(name)).seq for name in contexts}
        sources = [_rows(log, filters, name, 0, heads[name], newest) for name in contexts]
        found = _merged(sources)
        if newest:
            found = _all_of(deque([row async for row in found], newest))
        is_empty = not await _show(found, output, header=True, without_rows=titles)
        if is_empty and not titles and output in ("table", "wide"):
            of = f" about objects of namespace {filters.namespace}" if filters.namespace else ""
            click.echo(f"No events found{of}.", err=True)
    shown = _Shown(filters, heads)
    if follow:
        await _followed(postgres, shown, output)
    return shown


async def _followed(postgres: str, shown: _Shown, output: Format) -> None:
    """Shows the events that are appended after those shown, without an end."""
    filters, heads = shown
    async with reading(postgres) as log:
        while True:
            for name in chosen_contexts(await log.contexts(), filters.context):
                head, before = (await log.head(name)).seq, heads.get(name, 0)
                if head > before:
                    await _show(_rows(log, filters, name, before, head, 0), output, header=False)
                    heads[name] = head
            await asyncio.sleep(POLL_INTERVAL_S)


async def _known_key(log: LogReader, contexts: Sequence[str], key: str) -> str:
    """Returns the key, else that of the object of this name in the namespace `default`, as other commands take it.

    Raises:
        KoordError: no event is about either.
    """
    for each in dict.fromkeys((key, full_name(key, None))):
        if await _is_known(log, contexts, each):
            return each
    raise KoordError(f"no event in {', '.join(contexts)} is about {key!r}; give NAMESPACE/NAME, or a NAME")


async def _is_known(log: LogReader, contexts: Sequence[str], key: str) -> bool:
    for context in contexts:
        async for _ in log.rows(context=context, key=key, newest=1):
            return True
    return False


async def _merged(sources: Sequence[AsyncIterator[Row]]) -> AsyncIterator[Row]:
    """The rows of several contexts, each in its order, by the time of their append; all are searched at once."""
    first = await asyncio.gather(*(anext(source, None) for source in sources))
    heads = {number: row for number, row in enumerate(first) if row is not None}
    while heads:
        number = min(heads, key=lambda number: (heads[number].at, heads[number].context))
        yield heads.pop(number)
        if (row := await anext(sources[number], None)) is not None:
            heads[number] = row


async def _all_of(rows: Iterable[Row]) -> AsyncIterator[Row]:
    for row in rows:
        yield row


def _rows(log: LogReader, filters: Filters, context: str, after: int, upto: int, newest: int) -> AsyncIterator[Row]:
    return log.rows(
        context=context,
        kind=filters.kind,
        key=filters.key,
        namespace=filters.namespace,
        since=filters.since,
        until=filters.until,
        after=after,
        upto=upto,
        newest=newest or None,
    )


async def _show(rows: AsyncIterator[Row], output: Format, *, header: bool = True, without_rows: bool = False) -> bool:
    """Prints rows as they come; a table in pieces, for its columns are as wide as what is in them.

    Args:
        without_rows: print the titles of a table that has no rows yet.

    Returns:
        Whether there was a row.
    """
    piece: list[tuple[str, ...]] = []
    found = False
    async for row in rows:
        found = True
        if output not in ("table", "wide"):
            show_one_of_many(as_object(row), output)
            continue
        piece.append(_cells(row))
        if len(piece) == TABLE_ROWS:
            show_piece(piece, output, header=header)
            piece, header = [], False
    if output in ("table", "wide") and (piece or (header and without_rows and not found)):
        show_piece(piece, output, header=header)
    return found


def show_piece(piece: Sequence[tuple[str, ...]], output: Format, *, header: bool) -> None:
    """Prints rows of the table; on a terminal the data are cut where the line ends."""
    if output == "table" and sys.stdout.isatty():
        others = sum(max(map(len, column), default=0) + 2 for column in list(zip(*piece, strict=True))[:-1])
        columns = shutil.get_terminal_size().columns
        # Where the data have no room beside the other columns, they are on a line of their own below.
        width = columns - others if columns - others >= LEAST else columns - BELOW
        piece = [(*cells, data if len(data) <= width else f"{data[: width - 1]}…") for *cells, data in piece]
    show_table(_COLUMNS, piece, header=header)


def as_object(row: Row) -> dict[str, Any]:
    """An event for programs: its envelope, and its data as it is stored."""
    return {**row._asdict(), "data": msgspec.json.decode(row.data), "digest": row.digest.hex()}


def _cells(row: Row) -> tuple[str, ...]:
    data = {name: value for name, value in msgspec.json.decode(row.data).items() if name != "type"}
    kind = row.type.rpartition(".v")[0].rpartition(".")[2]
    text = msgspec.json.encode(data).decode()
    return (instant(row.at), f"{row.context}/{row.seq}", kind, row.key, row.cause or "", text)
