"""A description: labelled facts, lists and tables in the layout of `kubectl describe`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from cli.terminal.output import table_lines

INDENT = "  "


class Table(NamedTuple):
    """Rows below titles; `right` names the columns that are aligned to the right."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    right: tuple[str, ...] = ()


Value = str | Sequence[str] | Table
"""One line, several lines, or a table; an empty one is `<none>`."""

Description = Mapping[str, Value]
"""Label -> value, in the order in which they are shown."""


def text_of(description: Description) -> str:
    """Returns a description as text: labels in one column, tables below their label."""
    width = max((len(label) for label, value in description.items() if not isinstance(value, Table)), default=0) + 3
    return "".join(f"{line}\n" for label, value in description.items() for line in _lines(label, value, width))


def _lines(label: str, value: Value, width: int) -> Iterator[str]:
    if isinstance(value, Table):
        if not value.rows:
            yield f"{label}:".ljust(width) + "<none>"
            return
        yield f"{label}:"
        for line in table_lines(value.columns, value.rows, right=value.right):
            yield f"{INDENT}{line}"
        return
    first, *rest = ([value] if isinstance(value, str) else list(value)) or ["<none>"]
    yield f"{f'{label}:':<{width}}{first or '<none>'}"
    for line in rest:
        yield " " * width + line
