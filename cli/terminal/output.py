"""Printed results: tables for people, JSON, YAML or single values for programs.

One object, or one object a line when streamed.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

import click
import msgspec

from cli.terminal.json_path import JSONPATH, found_at

Format = str
"""`table`, `wide`, `name`, `json`, `yaml`, or `jsonpath=EXPRESSION`."""


WHOLE = 40
"""Characters up to which a table's cells are not broken; longer ones are where they have spaces."""

LEAST = 24
"""Characters to which a column of sentences shrinks where its terminal is narrow."""

GAP = 2
"""Spaces between two columns."""


def show(value: object, output: Format) -> None:
    """Prints one value for a program, on stdout."""
    plain = msgspec.to_builtins(value)
    if output.startswith(JSONPATH):
        _show_found(plain, output)
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(msgspec.json.format(msgspec.json.encode(plain), indent=2))


def show_one_of_many(value: object, output: Format) -> None:
    """Prints one of a stream of values: a line of JSON, or a YAML document."""
    plain = msgspec.to_builtins(value)
    if output.startswith(JSONPATH):
        _show_found(plain, output)
    elif output == "yaml":
        import yaml

        click.echo("---\n" + yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(msgspec.json.encode(plain))


def _show_found(plain: Any, output: Format) -> None:
    """Prints each value that the expression finds on a line: text as it is, everything else as JSON."""
    for value in found_at(output.removeprefix(JSONPATH), plain):
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        click.echo(text, nl=not text.endswith("\n"))


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    header: bool = True,
    right: Collection[str] = (),
) -> None:
    """Prints rows under a header: with colour on a terminal, as plain aligned text elsewhere, and on a terminal that is too
    narrow, which breaks the lines itself: no number is cut.

    Args:
        right: columns that are aligned to the right.
    """
    rows = [tuple(row) for row in rows]
    if sys.stdout.isatty() and _least_width(columns, rows) <= shutil.get_terminal_size().columns:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold", show_header=header)
        cells = [[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row] for row in rows]
        for number, column in enumerate(columns):
            # Names and instants stay whole: the room that is missing is taken from columns of sentences.
            is_whole = not any(_is_sentence(str(row[number])) for row in cells)
            side: Literal["left", "right"] = "right" if column in right else "left"
            table.add_column(column.upper(), justify=side, no_wrap=is_whole, overflow="fold")
        for row in cells:
            table.add_row(*row)
        Console().print(table)
        return
    for line in table_lines(columns, rows, header=header, right=right):
        click.echo(line)


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Returns the width of a table whose sentences, cells of more than `WHOLE` characters, are broken at `LEAST`."""
    if not rows:
        return 0
    cells = [[column, *(str(row[i]) for row in rows)] for i, column in enumerate(columns)]
    widths = (LEAST if any(map(_is_sentence, texts)) else max(map(len, texts)) for texts in cells)
    return sum(widths) + GAP * (len(columns) - 1)


def _rest_begins(line: str, width: int) -> int:
    """Returns the column for the rest of a line: that of its last column of a table, else a little behind its indent."""
    columns = [found.end() for found in re.finditer(r"\S {2,}(?=\S)", line[:width])]
    at = columns[-1] if columns else len(line) - len(line.lstrip()) + 4
    return at if at <= width * 5 // 8 else 4


def _is_sentence(cell: str) -> bool:
    """Returns whether a cell may be broken: a name or a number, be it ever so long, may not."""
    return len(cell) > WHOLE and " " in cell


def show_lines(lines: Iterable[str]) -> None:
    """Prints lines of text; on a terminal those that are too long are broken between words, and their rest is indented."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in lines:
        if not width or len(line) <= width:
            click.echo(line)
            continue
        indent = " " * _rest_begins(line, width)
        broken = textwrap.wrap(
            line,
            width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
        click.echo("\n".join(broken))


def table_lines(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    header: bool = True,
    right: Collection[str] = (),
) -> list[str]:
    """Returns a table as plain aligned lines."""
    texts = [[str(cell) for cell in row] for row in rows]
    if header:
        texts.insert(0, [column.upper() for column in columns])
    widths = [max(len(line[i]) for line in texts) for i in range(len(columns))] if texts else []
    aligned = [str.rjust if column in right else str.ljust for column in columns]
    return [
        "  ".join(align(cell, width) for align, cell, width in zip(aligned, line, widths, strict=True)).rstrip()
        for line in texts
    ]
