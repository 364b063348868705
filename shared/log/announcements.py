"""Messages of a writer on the bus: the batches it committed, and once a second the position of its head.

The bus is the quick way to new events; Postgres holds them. A batch that is lost costs its readers one query.

A message is a hint. It counts only on the subject of its own context, its digests are computed again from its bytes,
and its events are folded once Postgres has the digest of the last one.
"""

import struct
from collections.abc import Iterator, Sequence

import msgspec

from shared.errors import KoordError
from shared.log.hash_chain import Chain

LARGEST = 512 * 1024
"""Bytes of one message; a larger event is announced by its seq alone and read from Postgres."""

_BESIDE_DATA = 128
"""Bytes of an entry besides its data, key and correlation, and of a batch besides its entries, at most: digest, type,
cause; names and numbers.
"""

_MOST_SEQ = 2**63
"""Seqs are a bigint in Postgres."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One announced event, with all that its digest covers; `data` is empty when it was too large to send."""

    type: str
    cause: str | None
    data: bytes
    digest: bytes
    schema: int = 1
    key: str = ""
    correlation: str | None = None


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive events of one append.

    Attributes:
        epoch: of the writer.
        first: seq of the first event.
        previous: digest before it.
        actor: the writer.
    """

    context: str
    epoch: int
    first: int
    previous: bytes
    at_us: int
    entries: list[Entry]
    actor: str = ""

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
        more = len(entry.data) + len(entry.key) + len(entry.correlation or "") + _BESIDE_DATA
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
    return [
        msgspec.structs.replace(entry, data=b"", key="", correlation=None)
        if len(entry.data) + len(entry.key) + len(entry.correlation or "") > most
        else entry
        for entry in entries
    ]


encode = msgspec.msgpack.Encoder().encode


class BadAnnouncement(KoordError):
    """A message that no writer of this context sends."""


def read_batch(context: str, data: bytes) -> Batch:
    """Decodes a message on the subject of a context's batches.

    Raises:
        BadAnnouncement: it is none, or of another context.
    """
    try:
        batch = decode_batch(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadAnnouncement(f"{len(data)} bytes that are no batch") from error
    if batch.context != context:
        raise BadAnnouncement(f"a batch of {batch.context[:64]!r}")
    if not batch.entries or not 0 < batch.first < _MOST_SEQ or len(data) > 2 * LARGEST:
        raise BadAnnouncement(f"a batch of {len(batch.entries)} events from seq {batch.first}, {len(data)} bytes")
    return batch


def read_beacon(context: str, data: bytes) -> Beacon:
    """Decodes a message on the subject of a context's beacons. Raises as `read_batch` does."""
    try:
        beacon = decode_beacon(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadAnnouncement(f"{len(data)} bytes that are no beacon") from error
    if beacon.context != context:
        raise BadAnnouncement(f"a beacon of {beacon.context[:64]!r}")
    if not 0 <= beacon.seq < _MOST_SEQ:
        raise BadAnnouncement(f"a beacon at seq {beacon.seq}")
    return beacon


def is_chained(batch: Batch) -> bool:
    """Reports whether each digest is that of the event's bytes and of the digest before it."""
    try:
        chain = Chain(batch.context, batch.previous, at_us=batch.at_us, actor=batch.actor)
        return all(
            chain.add(seq, entry.type, entry.schema, entry.key, entry.cause, entry.correlation, entry.data)
            == entry.digest
            for seq, entry in enumerate(batch.entries, batch.first)
        )
    except (struct.error, UnicodeError):
        return False  # a number that no row can hold, a text that has no UTF-8


decode_batch = msgspec.msgpack.Decoder(Batch).decode
decode_beacon = msgspec.msgpack.Decoder(Beacon).decode
