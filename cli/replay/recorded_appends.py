"""The appends of a log: the events that were decided and committed together, the first one with their basis."""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import NamedTuple

from shared.events import EVENT_TYPES, RecordedEvent
from shared.log.codec import Codec
from shared.log.position import UNKNOWN, Position
from shared.log.reader import LogReader

EVERY_TYPE = tuple(EVENT_TYPES.values())


class Append(NamedTuple):
    """The events of one append, in their order.

    Attributes:
        seen: context -> seq that the decisions rest on.
    """

    seen: dict[str, int]
    records: tuple[RecordedEvent, ...]


class Grouping:
    """Collects consecutive events of a context into appends. The rest of one that began before the first is left out."""

    def __init__(self) -> None:
        self._records: list[RecordedEvent] = []

    def add(self, records: Iterable[RecordedEvent]) -> Iterator[Append]:
        """Yields the appends that end with these events."""
        for record in records:
            if record.event.seen is not None:
                yield from self.rest()
            elif not self._records:
                continue
            self._records.append(record)

    def rest(self) -> Iterator[Append]:
        """Yields the last append, once no more events follow."""
        if self._records:
            yield Append(self._records[0].event.seen or {}, tuple(self._records))
            self._records = []


async def appends(log: LogReader, context: str, after: int, upto: int) -> AsyncIterator[Append]:
    """Yields the appends of a context whose first events have seqs in (after, upto]; of the last one, the events up to
    `upto`.
    """
    grouping = Grouping()
    digest = await log.digest_at(context, after)
    begin = Position(after, UNKNOWN if digest is None else digest)
    async for page in log.pages(context, begin, upto, Codec(EVERY_TYPE)):
        for append in grouping.add(page.records):
            yield append
    for append in grouping.rest():
        yield append
