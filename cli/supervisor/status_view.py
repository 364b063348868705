"""The state of the services: a live table on a terminal, and elsewhere one line for each change."""

import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from cli.supervisor.supervisor import STABLE_S, Unit
from cli.terminal.durations import second

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

COLUMNS = ("service", "state", "lag", "events/s", "events", "restarts", "why")
SHORT = 60
"""Characters of the reason of an end that are shown of a service that responds again; its log has the whole."""
ADVISED_S = 10.0
"""Seconds of silence after which the end of a process is advised: services end by themselves, or are back, within some 6
s where it is Postgres or NATS that hangs, and that is named first."""
COMPILES = "it compiles its passes, once in each installation: a minute or more"
_STYLES = {
    "leading": "green",
    "waiting-for-lock": "cyan",
    "following": "yellow",
    "starting": "yellow",
    "draining": "magenta",
    "silent": "bold red",
    "down": "bold red",
}


def cells(unit: Unit, now_s: float = 0.0) -> tuple[str, ...]:
    """Returns one row of the table; empty where the service has no status. `why` begins with what it does not do, and what
    it cannot reach, and ends with its last end, for `STABLE_S` after that.

    Args:
        now_s: seconds since the epoch; by default the present.
    """
    status = unit.status
    figures = (f"{status.lag:,}", f"{status.events_per_s:,.0f}", f"{status.folded:,}") if status else ("", "", "")
    now = (*status.halted, *map(str, status.unreachable)) if status else ()
    now_s = now_s or time.time()
    why = "; ".join(filter(None, (*now, _silence(unit, now_s), _last_end(unit, now_s))))
    return (unit.spec.name, unit.state, *figures, str(unit.restarts), why)


def _silence(unit: Unit, now_s: float) -> str:
    """Returns that a process runs and does not respond, and why, or, after ADVISED_S, what to do; empty where it does, or
    ended.
    """
    if unit.process.pid is None or unit.stopped:
        return ""
    if unit.silent_s is None:
        return COMPILES if unit.compiles else ""
    pid = unit.process.pid
    silence = f"process {pid} does not respond since {_clock(unit.silent_s)}"
    return silence if now_s - unit.silent_s < ADVISED_S else f"{silence}; `kill -9 {pid}`: it is started again"


def _last_end(unit: Unit, now_s: float) -> str:
    """Returns why and when a unit ended last, cut where it has started again; empty once it did so for long, and where
    its end was requested since.
    """
    is_up = unit.status is not None and unit.status.state != "starting"
    if not unit.why or unit.stopped or (is_up and now_s - unit.ended_s > STABLE_S):
        return ""
    why = unit.why if not is_up or len(unit.why) <= SHORT else f"{unit.why[: SHORT - 3].rstrip()}..."
    return f"ended at {_clock(unit.ended_s)}: {why}"


def _clock(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%H:%M:%SZ}"


def table(units: Iterable[Unit], title: str = "") -> "RenderableType":
    """All units as a rich table."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        right = column in {"lag", "events/s", "events", "restarts"}
        grid.add_column(column, justify="right" if right else "left", no_wrap=column != "why", overflow="fold")
    for unit in units:
        row = [Text(cell) for cell in cells(unit)]
        impaired = unit.status is not None and bool(unit.status.unreachable or unit.status.halted)
        row[1].stylize("bold red" if impaired else _STYLES.get(unit.state, ""))
        grid.add_row(*row)
    return grid


class View:
    """Shows units until it is left; `update` after each change. Without a terminal each change is a line of its own."""

    def __init__(self, units: Iterable[Unit], title: str = "") -> None:
        self._units = list(units)
        self._title = title
        self._printed: dict[str, tuple[str, int, tuple[str, ...], tuple[str, ...], str]] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(table(self._units, self._title), refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def update(self, below: "RenderableType | str" = "") -> None:
        """Shows the present state of the units; `below` is shown under the table, on a terminal only."""
        if self._live:
            from rich.console import Group

            self._live.update(Group(table(self._units, self._title), *([below] if below else [])))
            return
        for unit in self._units:
            away = tuple(each.server for each in unit.status.unreachable) if unit.status else ()
            halted = unit.status.halted if unit.status else ()
            now = (unit.state, unit.restarts, away, halted, _silence(unit, time.time()))
            before = self._printed.get(unit.spec.name)
            if before != now:
                self._printed[unit.spec.name] = now
                click.echo(_line(unit, [each for each in before[2] if each not in away] if before else []))

    def note(self, text: str) -> None:
        """Prints a text that stays: above the table, or as a line."""
        if self._live:
            self._live.console.print(text)
        else:
            click.echo(text)


def _line(unit: Unit, back: Iterable[str] = ()) -> str:
    """Returns one line about a unit.

    Args:
        back: servers that it could not reach, and reaches again if it has a status.
    """
    status = unit.status
    figures = f" lag={status.lag} events_per_s={status.events_per_s:.0f}" if status else ""
    restarts = f" restarts={unit.restarts}" if unit.restarts else ""
    contact = (
        [*status.halted, *map(str, status.unreachable), *(f"reaches {each} again" for each in back)] if status else []
    )
    notes = filter(None, (*contact, _silence(unit, time.time()), _last_end(unit, time.time())))
    return f"{second(datetime.now(UTC))} {unit.spec.name} {unit.state}{figures}{restarts}" + "".join(
        f"; {each}" for each in notes
    )
