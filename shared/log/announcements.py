"""Messages of a writer on the bus: the batches it committed, and once a second the position of its head.

The bus is the quick way to new events; Postgres holds them. A batch that is lost costs its readers one query.
"""

from collections.abc import Iterator, Sequence

import msgspec

LARGEST = 512 * 1024
"""Bytes of one message; a larger event is announced by its seq alone and read from Postgres."""

_BESIDE_DATA = 128
"""Bytes of an entry besides its data, and of a batch besides its entries, at most: digest, type, cause; names and
numbers.
"""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One announced event; `data` is empty when it was too large to send."""

    type: str
    cause: str | None
    data: bytes
    digest: bytes


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive events of one append.

    Attributes:
        epoch: of the writer; followers ignore a batch of a lower epoch than one received before.
        first: seq of the first event.
        previous: digest before it.
    """

    context: str
    epoch: int
    first: int
    previous: bytes
    at_us: int
    entries: list[Entry]

    @property
    def last(self) -> int:
        """Seq of the last event."""
        return self.first + len(self.entries) - 1


class Beacon(msgspec.Struct, frozen=True, array_like=True):
    """Position of the head, published each second."""

    context: str
    epoch: int
    seq: int
    digest: bytes


def batch_subject(context: str) -> str:
    """Returns the subject of a context's batches."""
    return f"koord.log.{context}"


def beacon_subject(context: str) -> str:
    """Returns the subject of a context's beacons."""
    return f"koord.head.{context}"


def split(batch: Batch) -> Iterator[Batch]:
    """Cuts an append into messages of at most `LARGEST` bytes."""
    start, size, previous = 0, _BESIDE_DATA, batch.previous
    for index, entry in enumerate(batch.entries):
        more = len(entry.data) + _BESIDE_DATA
        if size + more > LARGEST and index > start:
            part = batch.entries[start:index]
            yield msgspec.structs.replace(batch, first=batch.first + start, previous=previous, entries=part)
            start, size, previous = index, _BESIDE_DATA, part[-1].digest
        size += more
    if start == 0:
        yield batch
        return
    yield msgspec.structs.replace(batch, first=batch.first + start, previous=previous, entries=batch.entries[start:])


def shorten(entries: Sequence[Entry]) -> list[Entry]:
    """Removes the data of events that no message can hold."""
    most = LARGEST - 2 * _BESIDE_DATA
    return [msgspec.structs.replace(entry, data=b"") if len(entry.data) > most else entry for entry in entries]


encode = msgspec.msgpack.Encoder().encode
decode_batch = msgspec.msgpack.Decoder(Batch).decode
decode_beacon = msgspec.msgpack.Decoder(Beacon).decode
