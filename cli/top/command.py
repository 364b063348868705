"""`koord top`: services, contexts and the bus, twice a second or once."""

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import Self

import click
import msgspec

from cli.bus_connection import bus_of, login_of
from cli.service_list import contexts
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.system_folder import find_endpoints
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_one_of_many, show_table
from cli.top.readings import Instruments, Reading
from cli.top.summary import Bus, Summary, summarise
from cli.top.table import CONTEXTS, SERVICES, bus_line, context_cells, rendered, service_cells, trouble_lines
from shared.bus.server_check import Server, look
from shared.errors import KoordError
from shared.log.admin.session import opened
from shared.log.announcements import beacon_subject, decode_beacon
from shared.log.database import Database

LEAST_S = 0.5
"""Seconds between two looks from which rates are computed."""


@click.command()
@click.option("--once", is_flag=True, help="Look for half a second to two, print, and end.")
@click.option(
    "--every",
    "interval_s",
    type=click.FloatRange(min=LEAST_S),
    default=2.0,
    show_default=True,
    help="Seconds between looks.",
)
@output_option
@folder_option
def top(*, once: bool, interval_s: float, output: Format, folder: Path) -> None:
    """Show how the services, the logs and the bus do, until Ctrl-C.

    From the log and the bus alone; the status of a service (its cpu and memory) is added for a system that
    `koord up` runs here, and for the addresses in KOORD_STATUSZ: `scheduler=http://scheduler:8080,...`. Without a
    terminal it is as with --once. With -o json and no --once, each look is one line.
    """
    asyncio.run(_top(find_endpoints(folder), output, interval_s, once=once))


async def _top(endpoints: Endpoints, output: Format, interval_s: float, *, once: bool) -> None:
    async with opened(endpoints.postgres) as database, _Watched(endpoints, database) as watched:
        if once or (output == "table" and not sys.stdout.isatty()):
            _print(await _look_once(watched, interval_s), output)
            return
        if output != "table":
            await watched.look()
            while True:
                await asyncio.sleep(interval_s)
                show_one_of_many(await watched.look(), output)
        from rich.live import Live

        with Live(auto_refresh=False, screen=True) as live:
            while True:
                live.update(rendered(await watched.look(), live.console.width), refresh=True)
                await asyncio.sleep(interval_s)


async def _look_once(watched: "_Watched", most_s: float) -> Summary:
    """Returns the summary of a second look, half a second after the first, or later: until each writer has shown by its
    status or by a beacon whether it leads. A beacon takes up to a second.
    """
    await watched.look()
    ends = time.monotonic() + most_s
    await asyncio.sleep(min(most_s, LEAST_S))
    while True:
        found = await watched.look()
        left_s = ends - time.monotonic()
        if left_s <= 0 or not found.bus["connected"] or not _unheard(found):
            return found
        await asyncio.sleep(min(left_s, LEAST_S))


def _unheard(found: Summary) -> list[str]:
    """Returns the contexts whose writer has sent no beacon so far, and shows no status."""
    with_status = {row.service for row in found.services if row.cpu_percent is not None}
    return [
        row.context
        for row in found.contexts
        if row.writer and row.has_beacon is None and row.writer.partition("@")[0] not in with_status
    ]


class _Watched:
    """The watched system: its instruments, and the reading before."""

    def __init__(self, endpoints: Endpoints, database: Database) -> None:
        self._login = login_of(endpoints.nats)
        self._bus = bus_of(endpoints.nats, "koord top")
        self._instruments = Instruments(database, endpoints.services, are_kept=endpoints.pid != 0)
        self._before: Reading | None = None
        self._server: Server | None = None
        self._beacons, self._counted = 0, 0

    async def look(self) -> Summary:
        """Takes a reading and compares it with the one before."""
        self._instruments.bus_connected = self._bus.connected
        if self._server is None and self._bus.connected:
            with contextlib.suppress(KoordError):
                self._server = await look(self._login)
        now = await self._instruments.read()
        bus: Bus = {"url": self._login.server, "connected": self._bus.connected}
        if self._server:
            bus |= {"version": self._server.version, "round_trip_ms": round(self._server.round_trip_s * 1000, 1)}
        if self._bus.refused:
            bus["refused"] = self._bus.refused
        if self._before and now.at_s > self._before.at_s:
            bus["beacons_per_s"] = round((self._beacons - self._counted) / (now.at_s - self._before.at_s), 1)
        self._counted = self._beacons
        summary = summarise(self._before, now, bus)
        self._before = now
        return summary

    def _received(self, data: bytes) -> None:
        with contextlib.suppress(msgspec.DecodeError):  # a login that may publish there may publish anything
            self._instruments.receive(decode_beacon(data))
            self._beacons += 1

    async def __aenter__(self) -> Self:
        await self._bus.start()
        for context in contexts():  # a login may subscribe to the declared subjects, not to a wildcard
            await self._bus.subscribe(beacon_subject(context), self._received)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._instruments.close()
        await self._bus.close()


def _print(summary: Summary, output: Format) -> None:
    if output != "table":
        show(summary, output)
        return
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        console.print(rendered(summary, console.width))
        _end_without_contexts(summary)
        return
    show_table(SERVICES, [service_cells(row) for row in summary.services])
    click.echo()
    show_table(CONTEXTS, [context_cells(row) for row in summary.contexts])
    click.echo()
    click.echo(bus_line(summary))
    for line in trouble_lines(summary):
        click.echo(line)
    for problem in summary.problems:
        click.echo(problem, err=True)
    _end_without_contexts(summary)


def _end_without_contexts(summary: Summary) -> None:
    """Ends with 1 where nothing could be read."""
    if summary.problems and not summary.contexts:
        sys.exit(1)
