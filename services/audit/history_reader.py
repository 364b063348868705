"""Answers with old events: what no stream holds any more, and the log still does."""

import msgspec

from services.audit.cloudevent import LARGEST, CloudEvents
from shared.log.database import FAILURES
from shared.log.raw_rows import RawRow, first_kept, raw_page
from shared.log.reader import LogReader, MissingEvents

MOST = 1_000
"""Events of one answer."""


class Ask(msgspec.Struct, rename={"begin": "from"}, forbid_unknown_fields=True):
    """`{"from": 4711, "limit": 100}`: the first seq that is wanted, and how many."""

    begin: int = 1
    limit: int = 100


class Span(msgspec.Struct):
    """What an answer says beside its events.

    Attributes:
        oldest: the first event that the log keeps; an answer never begins before it.
        head: the last there is.
        next: what to ask from for more; head + 1 when that was all.
    """

    context: str
    oldest: int
    head: int
    next: int


async def read(reader: LogReader, source: str, context: str, asked: bytes) -> bytes:
    """The events of a context from a seq on, as CloudEvents, in as many bytes as one message holds.

    Returns:
        Lines of JSON, so that who checks digests has the exact text of each event: first a `Span`, then an event a line; or one
        line `{"error"}` saying what to ask instead.
    """
    try:
        ask = msgspec.json.decode(asked or b"{}", type=Ask)
    except msgspec.DecodeError as error:
        return _refused(f'{error}; ask with {{"from": 1, "limit": 100}}')
    if ask.begin < 1 or not 1 <= ask.limit <= MOST:
        return _refused(f"ask from seq 1 or later, for 1 to {MOST} events")
    try:
        if context not in await reader.contexts():
            return _refused(f"there is no context {context}; there are {', '.join(await reader.contexts())}")
        oldest, head = await first_kept(reader.database, context), (await reader.head(context)).seq
        first = max(ask.begin, oldest, 1)
        upto = min(head, first + ask.limit - 1)
        rows = await raw_page(reader, context, first - 1, upto) if first <= upto else []
    except (MissingEvents, *FAILURES) as error:
        return _refused(f"the log cannot be read: {error}")
    return _answer(Span(context, oldest, head, first), CloudEvents(context, source), rows)


def _answer(span: Span, events: CloudEvents, rows: list[RawRow]) -> bytes:
    """As many of the rows as fit, one at least."""
    parts: list[bytes] = []
    left = LARGEST
    for row in rows:
        event = events.encode(row)
        left -= len(event) + 1
        if parts and left < 0:
            break
        parts.append(event)
        span.next = row.seq + 1
    return b"\n".join((msgspec.json.encode(span), *parts))


def _refused(error: str) -> bytes:
    return msgspec.json.encode({"error": error})
