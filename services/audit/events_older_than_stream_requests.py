"""Requests for old events that are no longer in a stream, but still in the log."""

import msgspec

from services.audit.cloudevent import LARGEST, CloudEvents
from services.audit.service_manifest import READ
from shared.kube.json_text import read_json
from shared.log.database import FAILURES
from shared.log.raw_rows import RawRow, first_kept, raw_page
from shared.log.reader import LogReader, MissingEvents
from shared.rejected_messages import RejectionRecord

MAX_EVENTS = 1_000
"""Events of one response, at most."""


class HistoryRequest(msgspec.Struct, rename={"begin": "from"}, forbid_unknown_fields=True):
    """`{"from": 4711, "limit": 100}`: the first requested seq, and the number of events."""

    begin: int = 1
    limit: int = 100


class HistoryRange(msgspec.Struct):
    """The range of a response.

    Attributes:
        oldest: the first event that the log keeps; no response begins before it.
        head: the newest event.
        next: `from` of the next request; head + 1 after the newest event.
    """

    context: str
    oldest: int
    head: int
    next: int


async def read(reader: LogReader, source: str, context: str, request_data: bytes, rejections: RejectionRecord) -> bytes:
    """Reads the events of a context from a seq on, as CloudEvents, as many as fit into one message. A request that
    cannot be read is recorded, by the declared subject.

    Returns:
        Lines of JSON, so that clients can check digests on the exact text of each event: first a `HistoryRange`, then
        one event a line; or one line `{"error"}` that names a valid request.
    """
    try:
        request = read_json(request_data or b"{}", HistoryRequest)
    except msgspec.DecodeError as error:
        rejections.add(f"{READ}.*", str(error))
        return _error(f'{error}; request {{"from": 1, "limit": 100}}')
    if request.begin < 1 or not 1 <= request.limit <= MAX_EVENTS:
        return _error(f"request events from seq 1 or later, 1 to {MAX_EVENTS} events")
    try:
        if context not in await reader.contexts():
            return _error(f"there is no context {context}; there are {', '.join(await reader.contexts())}")
        oldest, head = await first_kept(reader.database, context), (await reader.head(context)).seq
        first = max(request.begin, oldest, 1)
        upto = min(head, first + request.limit - 1)
        rows = await raw_page(reader, context, first - 1, upto) if first <= upto else []
    except (MissingEvents, *FAILURES) as error:
        return _error(f"the log cannot be read: {error}")
    return _response(HistoryRange(context, oldest, head, first), CloudEvents(context, source), rows)


def _response(span: HistoryRange, events: CloudEvents, rows: list[RawRow]) -> bytes:
    """Encodes as many rows as fit into a message, at least one."""
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


def _error(error: str) -> bytes:
    return msgspec.json.encode({"error": error})
