"""Rendering of a summary: plain tables for a pipe, rich ones for a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.terminal.durations import age, size
from cli.top.summary import ContextRow, ServiceRow, Summary

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

SERVICES = ("service", "replica", "state", "epoch", "up", "cpu", "rss", "lag", "events/s")
CONTEXTS = ("context", "head", "events/s", "size", "partitions", "oldest", "written by", "behind")
_RIGHT = frozenset({"epoch", "up", "cpu", "rss", "lag", "events/s", "head", "size", "partitions", "oldest"})
_SENTENCES = frozenset({"state", "written by", "behind"})
"""Columns that may be broken over lines, at `_BROKEN_AT` characters or more; numbers and names never are."""
_BROKEN_AT = 16
_GAP = 2
"""Spaces between two columns."""
_LEFT_OUT = ("epoch", "partitions", "rss", "oldest", "up", "replica", "size", "events/s", "cpu", "lag", "written by")
"""Columns that a narrow terminal does without, the first of them first."""
_STYLES = {
    "leading": "green",
    "following": "cyan",
    "waiting-for-lock": "cyan",
    "starting": "yellow",
    "silent": "bold red",
    "running": "green",
}


def service_cells(row: ServiceRow) -> tuple[str, ...]:
    """One line of the first table; empty where nothing is known."""
    return (
        row.service,
        row.replica,
        row.state + _trouble(row),
        _number(row.epoch, plain=True),
        "" if row.up_s is None else age(row.up_s),
        "" if row.cpu_percent is None else f"{row.cpu_percent:.1f} %",
        "" if row.rss_bytes is None else size(row.rss_bytes),
        _number(row.lag),
        "" if row.events_per_s is None else f"{row.events_per_s:,.0f}",
    )


def context_cells(row: ContextRow) -> tuple[str, ...]:
    """One line of the second table; only followers that are behind are named."""
    late = [f"{service} {events:,}" for service, events in sorted(row.lag.items()) if events]
    nobody = "" if row.lag else "no followers"
    return (
        row.context,
        f"{row.head:,}",
        "" if row.events_per_s is None else f"{row.events_per_s:,.0f}",
        "" if row.size_bytes is None else size(row.size_bytes),
        _number(row.partitions),
        _number(row.oldest),
        row.writer + (" (no beacons)" if row.writer and row.has_beacon is False else ""),
        ", ".join(late) or nobody or "none",
    )


def trouble_lines(summary: Summary) -> list[str]:
    """Returns the work that each service does not do, and the servers that it cannot reach, since when, and why."""
    halted = [f"{row.replica}: {each}" for row in summary.services for each in row.halted]
    return halted + [f"{row.replica} {each}" for row in summary.services for each in row.unreachable]


def bus_line(summary: Summary) -> str:
    """The bus in one line."""
    bus = summary.bus
    if bus.get("refused"):
        return f"bus: {bus['url']} refuses {bus['refused']}"
    if not bus.get("connected") or "version" not in bus:
        return f"bus: {bus.get('url') or 'no address'}, not connected"
    return (
        f"bus: {bus['url']}, NATS {bus['version']}, {bus['round_trip_ms']} ms, {bus.get('beacons_per_s', 0)} beacons/s"
    )


def rendered(summary: Summary, width: int) -> "RenderableType":
    """Returns all of it for a terminal; columns for which it is too narrow are left out, and named.

    Args:
        width: of the terminal, in characters.
    """
    from rich.console import Group
    from rich.text import Text

    services = [service_cells(row) for row in summary.services]
    contexts = [context_cells(row) for row in summary.contexts]
    shown = [fitting(columns, rows, width) for columns, rows in ((SERVICES, services), (CONTEXTS, contexts))]
    left_out = [
        name
        for names, all_names in zip(shown, (SERVICES, CONTEXTS), strict=True)
        for name in all_names
        if name not in names
    ]
    return Group(
        _grid(SERVICES, services, shown[0]),
        Text(""),
        _grid(CONTEXTS, contexts, shown[1]),
        Text(""),
        Text(bus_line(summary)),
        *([Text(f"{width} columns: without {', '.join(left_out)}", style="dim")] if left_out else []),
        *(Text(line, style="bold red") for line in trouble_lines(summary)),
        *(Text(problem, style="bold red") for problem in summary.problems),
    )


def fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Returns the columns that fit into a width with their cells whole, but for sentences."""
    widths = {}
    for number, column in enumerate(columns):
        widest = max([len(column), *(len(row[number]) for row in rows)])
        widths[column] = min(widest, _BROKEN_AT) if column in _SENTENCES else widest
    for column in _LEFT_OUT:
        if sum(widths.values()) + _GAP * (len(widths) - 1) <= width:
            break
        widths.pop(column, None)
    return list(widths)


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]], shown: Sequence[str]) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in shown:
        justify: JustifyMethod = "right" if column in _RIGHT else "left"
        grid.add_column(column, justify=justify, overflow="fold", no_wrap=column not in _SENTENCES)
    for row in rows:
        cells = {column: Text(cell) for column, cell in zip(columns, row, strict=True)}
        if (state := cells.get("state")) is not None:
            state.stylize(_STYLES.get(state.plain, "bold red" if "(" in state.plain else ""))
        grid.add_row(*(cells[column] for column in shown))
    return grid


def _trouble(row: ServiceRow) -> str:
    """Returns whether it has halted, and the servers that refuse it or that it cannot reach, in brackets, as an addition
    to its state.
    """
    found = ["NATS refuses it"] if row.refused else []
    found += ["halted"] if row.halted else []
    away = [name for each in row.unreachable if (name := each.server.partition(" at ")[0]) != "NATS" or not row.refused]
    found += [f"cannot reach {', '.join(away)}"] if away else []
    return f" ({'; '.join(found)})" if found else ""


def _number(value: int | None, *, plain: bool = False) -> str:
    if value is None:
        return ""
    return str(value) if plain else f"{value:,}"
