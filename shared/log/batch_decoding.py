"""Decodes the events of a batch that arrived over the bus into records."""

from collections.abc import Callable

from shared.events import Cause, Event, RecordedEvent
from shared.log.announcements import Batch, Entry
from shared.log.codec import Codec, Unreadable


def decoded(
    codec: Codec, passed: Callable[[str, int], bool], batch: Batch, begin: int, end: int
) -> list[RecordedEvent]:
    """Decodes the declared events of a batch from one index to another at once; one by one where that fails, to name
    the event.

    Args:
        passed: reports that the event at a seq of a context is skipped.

    Raises:
        Unreadable: one cannot be decoded.
    """
    name = batch.context
    declared = [
        (seq, entry)
        for seq, entry in enumerate(batch.entries[begin:end], batch.first + begin)
        if entry.type in codec.declared and not passed(name, seq)
    ]
    if not declared:
        return []
    at_ns = batch.at_us * 1000
    try:
        events = codec.page(b",".join([entry.data for _, entry in declared]))
    except Exception:  # noqa: BLE001  any exception of a decoder or upcaster makes an event unreadable
        events = [_one(codec, name, seq, entry) for seq, entry in declared]
    return [
        RecordedEvent(name, seq, event, at_ns, Cause.parse(entry.cause) if entry.cause else None)
        for (seq, entry), event in zip(declared, events, strict=True)
        if event is not None
    ]


def _one(codec: Codec, name: str, seq: int, entry: Entry) -> Event | None:
    try:
        return codec.one(entry.type, entry.data)
    except Exception as error:
        raise Unreadable(name, seq, error) from error
