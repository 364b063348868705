"""The events of a simulated log, decoded."""

from collections.abc import Iterator

from cli.dev.fault_simulation.memory_log import Context
from shared.events import Cause, RecordedEvent
from shared.log.codec import Codec


def records(context: Context, codec: Codec, upto: int) -> Iterator[RecordedEvent]:
    """Yields the kept events of the declared types, up to a seq."""
    for row in context.rows:
        if row.seq > upto:
            return
        if row.type in codec.declared and (event := codec.one(row.type, row.data)) is not None:
            cause = Cause.parse(row.cause) if row.cause else None
            yield RecordedEvent(context.name, row.seq, event, row.at_us * 1000, cause)
