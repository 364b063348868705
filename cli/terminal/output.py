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

BELOW = 10
"""Columns before the data of an event that are below its row."""

_COMMAND = re.compile("`[^`]*`")
_KEPT = "\0"
"""Stands for a space at which a line is not broken: that of a short command."""

GAP = 2
"""Spaces between two columns."""


def show(value: object, output: Format) -> None:
    """Prints one value for a program, on stdout."""
    plain = msgspec.to_builtins(value)
    if output.startswith(JSONPATH):
        if not _show_found(plain, output):
            path = output.removeprefix(JSONPATH)
            show_text(f"koord: nothing is at {path!r} in this output; -o json shows all of it", err=True)
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


def _show_found(plain: Any, output: Format) -> bool:
    """Prints each value that the expression finds on a line: text as it is, everything else as JSON.

    Returns:
        Whether there was one.
    """
    found = found_at(output.removeprefix(JSONPATH), plain)
    for value in found:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        click.echo(text, nl=not text.endswith("\n"))
    return bool(found)


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    header: bool = True,
    right: Collection[str] = (),
) -> None:
    """Prints rows under a header: with colour on a terminal, as plain aligned text elsewhere. On a terminal that is too
    narrow, what does not fit follows each row on lines of its own: nothing is cut.

    Args:
        right: columns that are aligned to the right.
    """
    rows = [tuple(row) for row in rows]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    if width and _least_width(columns, rows) <= width:
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
    lines = table_lines(columns, rows, header=header, right=right)
    if width and max(map(len, lines), default=0) > width:
        lines = stacked_lines(columns, rows, width, header=header, right=right)
    for line in lines:
        click.echo(line)


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Returns the width of a table whose sentences, cells of more than `WHOLE` characters, are broken at `LEAST`."""
    if not rows:
        return 0
    cells = [[column, *(str(row[i]) for row in rows)] for i, column in enumerate(columns)]
    widths = (LEAST if any(map(_is_sentence, texts)) else max(map(len, texts)) for texts in cells)
    return sum(widths) + GAP * (len(columns) - 1)


def stacked_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int,
    *,
    header: bool = True,
    right: Collection[str] = (),
) -> list[str]:
    """Returns a table for a terminal that is too narrow for it: each row has the columns that fit, and below it the others
    with their names; sentences are the first to go there.
    """
    texts = [[str(cell) for cell in row] for row in rows]
    filled = [i for i in range(len(columns)) if i == 0 or any(line[i] not in ("", "-") for line in texts)]
    kept = [i for i in filled if i == 0 or not any(_is_sentence(line[i]) for line in texts)]

    def table() -> list[str]:
        return table_lines(
            [columns[i] for i in kept], [[line[i] for i in kept] for line in texts], header=header, right=right
        )

    while len(kept) > 1 and max(map(len, table()), default=0) > width:
        kept.pop()
    found = table()
    rest = [i for i in range(len(columns)) if i not in kept]
    result = found[:1] if header else []
    for line, text in zip(found[1:] if header else found, texts, strict=True):
        below = "; ".join(f"{columns[i]}: {text[i]}" for i in rest if text[i] not in ("", "-"))
        result += [line, *(_broken(f"    {below}", width) if below else ())]
    return result


def _rest_begins(line: str, width: int) -> int:
    """Returns the column for the rest of a line: that of its last column of a table, else a little behind its indent."""
    columns = [found.end() for found in re.finditer(r"\S {2,}(?=\S)", line[:width])]
    at = columns[-1] if columns else len(line) - len(line.lstrip()) + 4
    return at if at <= width * 5 // 8 else 4


def _is_sentence(cell: str) -> bool:
    """Returns whether a cell may be broken: a name or a number, be it ever so long, may not."""
    return len(cell) > WHOLE and " " in cell


def show_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Prints lines of text; on a terminal those that are too long are broken between words, and their rest is indented."""
    stream = sys.stderr if err else sys.stdout
    width = shutil.get_terminal_size().columns if stream.isatty() else 0
    for line in lines:
        click.echo("\n".join(_broken(line, width)) if width else line, err=err)


def show_text(text: str, *, err: bool = False) -> None:
    """Prints a text as `show_lines` does its lines."""
    show_lines(text.split("\n"), err=err)


def broken(line: str) -> list[str]:
    """Returns a line as the lines in which the terminal shows it; whole where there is none."""
    return _broken(line, shutil.get_terminal_size().columns) if sys.stdout.isatty() else [line]


def _broken(line: str, width: int) -> list[str]:
    """Returns a line as lines of at most this width."""
    if len(line) <= width:
        return [line]
    indent = _rest_begins(line, width)
    if any(len(word) > width - indent for word in line.split()):
        indent = 4

    def whole(command: re.Match[str]) -> str:
        return command[0].replace(" ", _KEPT) if len(command[0]) <= (width - indent) // 2 else command[0]

    lines = textwrap.wrap(
        _COMMAND.sub(whole, line),
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    return [each.replace(_KEPT, " ") for each in lines]


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
