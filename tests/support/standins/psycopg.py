"""The part of psycopg that the program of docs/log.md uses, over asyncpg: the program is run as it is printed there.

psycopg is no dependency of this project; a reader of the document may have any driver. This folder is put on the path
of the program.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg


class Cursor:
    """The rows of one statement."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._rows: list[Any] = []

    def execute(self, statement: str, arguments: Sequence[Any]) -> None:
        """Runs a statement with `%s` for each argument."""
        for number in range(len(arguments)):
            statement = statement.replace("%s", f"${number + 1}", 1)
        self._rows = asyncio.run(self._fetch(statement, arguments))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (tuple(row) for row in self._rows)

    async def _fetch(self, statement: str, arguments: Sequence[Any]) -> list[Any]:
        connection = await asyncpg.connect(self._url)
        try:
            return list(await connection.fetch(statement, *arguments))
        finally:
            await connection.close()


class Connection:
    """A connection, opened with each statement."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextmanager
    def cursor(self, name: str) -> Iterator[Cursor]:
        """Returns a cursor."""
        yield Cursor(self._url)


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    """Opens a connection."""
    yield Connection(url)
