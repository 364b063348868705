"""Pages of audit events, newest first. A reader continues at the end of its last page; new events do not move it.

Source: spec/node-agent.md 7.4.
"""

import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from shared.errors import KoordError

BLOCK_BYTES = 65_536
READER_KEPT_S = 600.0


class UnknownPage(KoordError):
    """A page token that belongs to no reader, or to one that has expired."""

    def __init__(self, token: str) -> None:
        super().__init__(f"page token {token!r} is unknown or has expired; begin anew without pageToken")


class Page(NamedTuple):
    """Events as JSON lines, newest first.

    Attributes:
        token: for the next page; empty at the end.
    """

    lines: Sequence[bytes]
    token: str


class AuditReaders:
    """Readers by the token of their next page: of more than the limit the longest unused one ends."""

    def __init__(self, files: Callable[[], Sequence[Path]], limit: int, clock_s: Callable[[], float]) -> None:
        self._files, self._limit, self._clock_s = files, limit, clock_s
        self._readers: dict[str, _Reader] = {}

    def page(self, size: int, token: str = "") -> Page:
        """Returns the next page of a reader; without a token of a new one.

        Raises:
            UnknownPage: the token is unknown or expired.
        """
        now_s = self._clock_s()
        for each in [each for each, reader in self._readers.items() if reader.until_s < now_s]:
            self._end(each)
        if token and token not in self._readers:
            raise UnknownPage(token)
        reader = self._readers.pop(token) if token else _Reader([], _newest_first(self._files()), 0.0)
        found = [*reader.pending, *islice(reader.lines, size + 1 - len(reader.pending))]
        if len(found) <= size:
            return Page(found, "")
        token = token or str(uuid.uuid4())
        self._readers[token] = _Reader([found.pop()], reader.lines, now_s + READER_KEPT_S)
        while len(self._readers) > self._limit:
            self._end(next(iter(self._readers)))
        return Page(found, token)

    def close(self) -> None:
        """Ends all readers."""
        for token in list(self._readers):
            self._end(token)

    def _end(self, token: str) -> None:
        self._readers.pop(token).lines.close()


class _Reader(NamedTuple):
    """One reader.

    Attributes:
        pending: the line after the last page, read to know that there is one.
        until_s: when it expires unless it is used.
    """

    pending: list[bytes]
    lines: Generator[bytes]
    until_s: float


def _newest_first(paths: Sequence[Path]) -> Generator[bytes]:
    """Yields the lines of files that are opened now, so that a rotation does not move them: the last line first."""
    files = []
    for path in paths:
        try:
            files.append(path.open("rb"))
        except OSError:
            continue  # rotated away meanwhile

    def lines() -> Generator[bytes]:
        try:
            for file in files:
                yield from _lines_backwards(file)
        finally:
            for file in files:
                file.close()

    return lines()


def _lines_backwards(file: BinaryIO) -> Iterator[bytes]:
    ends = file.seek(0, 2)
    rest = b""
    while ends > 0:
        begins = max(0, ends - BLOCK_BYTES)
        file.seek(begins)
        parts = (file.read(ends - begins) + rest).split(b"\n")
        rest, ends = parts[0], begins
        yield from filter(_is_whole, reversed(parts[1:]))
    yield from filter(_is_whole, [rest])


def _is_whole(line: bytes) -> bool:
    """Reports whether a line holds an event: a machine that lost its power may have written a part of one."""
    return line.startswith(b"{") and line.endswith(b"}")
