"""`koord events`: the log as it is stored."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from cli.instants import Since
from cli.options import folder_option, output_option
from cli.output import Format, show_one_of_many, show_table
from cli.supervisor.folder import find_endpoints
from shared.log.reader import LogReader, Row
from shared.log.session import reading

POLL_EVERY_S = 0.5
_COLUMNS = ("at", "event", "type", "key", "cause", "data")
_DATA_WIDTH = 100


class Wanted(NamedTuple):
    """Which events to show; None is no restriction."""

    context: str | None
    kind: str | None
    key: str | None
    since: datetime | None


@click.command()
@click.option("--context", help="Only this context's log, such as cluster or scheduling.")
@click.option("--type", "kind", help="Only this type; the end of its name is enough: PodPlaced, PodPlaced.v1.")
@click.option("--key", help="Only events about this object: NAMESPACE/NAME, or a NAME.")
@click.option("--since", type=Since(), help="Only events from this instant on: 10m (ago), or RFC 3339.")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=0),
    help="Only the newest so many; 0 is all.  [default: 50, all with --since]",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with new events until Ctrl-C.")
@output_option
@folder_option
def events(
    *,
    context: str | None,
    kind: str | None,
    key: str | None,
    since: datetime | None,
    last: int | None,
    follow: bool,
    output: Format,
    folder: Path,
) -> None:
    """Show events of the log, oldest first.

    With -o json each event is a line of its own, with its whole data, its digest and the event that caused it.
    """
    newest = (0 if since else 50) if last is None else last
    wanted = Wanted(context, kind, key, since)
    asyncio.run(_events(find_endpoints(folder).postgres, wanted, newest, output, follow=follow))


async def _events(postgres: str, wanted: Wanted, newest: int, output: Format, *, follow: bool) -> None:
    async with reading(postgres) as log:
        contexts = [wanted.context] if wanted.context else await log.contexts()
        heads = {name: (await log.head(name)).seq for name in contexts}
        found = [row for name in contexts async for row in _rows(log, wanted, name, 0, heads[name], newest)]
        found.sort(key=lambda row: (row.at, row.context, row.seq))
        _show(found[-newest:] if newest else found, output)
        while follow:
            await asyncio.sleep(POLL_EVERY_S)
            for name in contexts:
                head = (await log.head(name)).seq
                if head > heads[name]:
                    _show([row async for row in _rows(log, wanted, name, heads[name], head, 0)], output, header=False)
                    heads[name] = head


def _rows(log: LogReader, wanted: Wanted, context: str, after: int, upto: int, newest: int) -> AsyncIterator[Row]:
    return log.rows(
        context=context,
        kind=wanted.kind,
        key=wanted.key,
        since=wanted.since,
        after=after,
        upto=upto,
        newest=newest or None,
    )


def _show(rows: list[Row], output: Format, *, header: bool = True) -> None:
    if output != "table":
        for row in rows:
            show_one_of_many(as_object(row), output)
    elif rows or header:
        show_table(_COLUMNS, [_cells(row) for row in rows], header=header)


def as_object(row: Row) -> dict[str, Any]:
    """An event for programs: its envelope, and its data as it is stored."""
    return {**row._asdict(), "data": msgspec.json.decode(row.data), "digest": row.digest.hex()}


def _cells(row: Row) -> tuple[str, ...]:
    data = {name: value for name, value in msgspec.json.decode(row.data).items() if name != "type"}
    text = msgspec.json.encode(data).decode()
    short = text if len(text) <= _DATA_WIDTH else f"{text[: _DATA_WIDTH - 1]}…"
    kind = row.type.rpartition(".v")[0].rpartition(".")[2]
    return (f"{row.at:%H:%M:%S.%f}"[:-3], f"{row.context}/{row.seq}", kind, row.key, row.cause or "", short)
