"""The tree of quotas on a terminal, with bars, once or again and again."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby

import click

from cli.quota import render
from cli.terminal.durations import second
from cli.terminal.output import Format, show, show_table
from services.quota_ledger.explain.quota_overview import OverviewRow

INTERVAL_S = 2
OTHER_LINES = 5
"""Of a watched screen: two above the table, its header, what is left out, and the legend."""

_HOME, _CLEAR_BELOW, _HIDE, _SHOW = "\x1b[H\x1b[2J", "\x1b[J", "\x1b[?25l", "\x1b[?25h"


def draw(lines: Sequence[OverviewRow], most: int | None = None) -> None:
    """The table with bars and what they mean; of more than `most` lines the rest is counted."""
    from rich.text import Text

    def bar(line: OverviewRow) -> Text:
        text = Text()
        for cell, run in groupby(render.bar(line)):
            text.append("".join(run), render.STYLES[cell])
        return text

    shown = lines[:most]
    rows = list(render.rows(shown))
    widths = (max(map(len, column)) + 1 for column in zip(render.COLUMNS, *rows, strict=True))
    bars = [bar(line) for line in shown]
    has_room = any(bars) and sum(widths) + render.BAR <= shutil.get_terminal_size().columns
    if has_room:
        cells = ((*row, drawn) for row, drawn in zip(rows, bars, strict=True))
        show_table((*render.COLUMNS, ""), cells, right=render.AMOUNTS)
    else:
        show_table(render.COLUMNS, rows, right=render.AMOUNTS)
    if len(shown) < len(lines):
        click.echo(f"... and {len(lines) - len(shown)} more; without --watch all are shown")
    if has_room:
        click.echo(click.style(render.LEGEND, dim=True))


def watch(found: Callable[[], Sequence[OverviewRow]], output: Format) -> None:
    """Again every two seconds until interrupted: the screen in place on a terminal, else one after the other."""
    is_screen = output == "table" and sys.stdout.isatty()
    if is_screen:
        click.echo(_HIDE, nl=False)
    try:
        while True:
            lines = found()
            if is_screen:
                height = shutil.get_terminal_size().lines
                click.echo(f"{_HOME}Quotas at {second(datetime.now(UTC))}; Ctrl-C ends\n")
                draw(lines, max(1, height - OTHER_LINES - 1))
                click.echo(_CLEAR_BELOW, nl=False)
            elif output == "table":
                show_table(render.COLUMNS, render.rows(lines), right=render.AMOUNTS)
                click.echo()
            else:
                show(lines, output)
            time.sleep(INTERVAL_S)
    finally:
        if is_screen:
            click.echo(_SHOW, nl=False)
