"""Encodes one append in the three forms it needs: COPY's binary for Postgres, entries for the bus, records for the
fold.

COPY's binary form and the digest write a text, a null and a byte string alike (u32 length and the bytes, 2^32-1 for
null), so both are joined from the same pieces; they differ in numbers (COPY adds their length) and in the epoch of `at`
(2000-01-01).
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from shared.events import Draft, Event, RecordedEvent
from shared.log.announcements import Batch, Entry
from shared.log.hash_chain import I64, NULL, U16, U32, U64, text
from shared.log.position import Position

COLUMNS = ("context", "seq", "type", "schema", "key", "at", "actor", "cause", "correlation", "data", "digest")

_POSTGRES_EPOCH_US = 946_684_800_000_000
_HEADER = b"PGCOPY\n\xff\r\n\0" + U32.pack(0) + U32.pack(0)
_TRAILER = b"\xff\xff"
_2, _8, _32 = U32.pack(2), U32.pack(8), U32.pack(32)

_ENCODE = msgspec.json.Encoder().encode
_PLAIN = sha256()  # copied for each row: cheaper than a new one


class Rows(NamedTuple):
    """One append."""

    copy: bytes
    batch: Batch
    records: list[RecordedEvent]


class _Kind(NamedTuple):
    """Encoded parts that all rows of a type share."""

    name: str
    key: str
    schema: int
    digested: bytes  # type and schema, as the digest has them
    copied: bytes  # ... and as COPY has them


def _kind_of(kind: type[Event]) -> _Kind:
    name, schema = text(kind.type_name()), U16.pack(kind.SCHEMA)
    return _Kind(kind.type_name(), kind.KEY, kind.SCHEMA, name + schema, name + _2 + schema)


def _with_basis(drafts: Sequence[Draft], now_ns: int, seen: Mapping[str, int] | None, config: str) -> Iterator[Draft]:
    """Adds the basis of the decision to the first event of an append."""
    first, *rest = drafts
    basis = dict(sorted(seen.items())) if seen is not None else first.event.seen
    yield first._replace(event=msgspec.structs.replace(first.event, seen=basis, now_ns=now_ns, config=config or None))
    yield from rest


class RowWriter:
    """Encodes the rows of one writer's appends."""

    def __init__(self, context: str, actor: str) -> None:
        self._context = context
        self._actor_name = actor
        self._actor = text(actor)
        self._digested_context = text(context)
        self._copied_context = U16.pack(len(COLUMNS)) + text(context) + _8
        self._kinds: dict[type[Event], _Kind] = {}

    def rows(
        self,
        head: Position,
        epoch: int,
        drafts: Sequence[Draft],
        now_ns: int,
        seen: Mapping[str, int] | None,
        config: str,
    ) -> Rows:
        """Returns the rows that follow `head`; at least one draft. Raises when an event cannot be encoded."""
        at_us = now_ns // 1000
        at_ns = at_us * 1000
        context, here, copied_context = self._context, self._digested_context, self._copied_context
        digested_at = I64.pack(at_us) + self._actor
        copied_at = _8 + I64.pack(at_us - _POSTGRES_EPOCH_US) + self._actor
        kinds, u32, u64, join, plain = self._kinds, U32.pack, U64.pack, b"".join, _PLAIN.copy
        seq, digest = head
        parts: list[bytes] = [_HEADER]
        entries: list[Entry] = []
        records: list[RecordedEvent] = []
        for event, cause, correlation in _with_basis(drafts, now_ns, seen, config):
            seq += 1
            kind = kinds.get(type(event)) or kinds.setdefault(type(event), _kind_of(type(event)))
            name = str(getattr(event, kind.key))
            key = name.encode()
            data = _ENCODE(event)
            why = None if cause is None else f"{cause.context}/{cause.seq}"
            number, length, named = u64(seq), u32(len(data)), u32(len(key)) + key
            because = NULL if why is None else text(why)
            correlated = NULL if correlation is None else text(correlation)
            hashed = plain()
            hashed.update(
                join((digest, here, number, kind.digested, named, digested_at, because, correlated, length, data))
            )
            digest = hashed.digest()
            parts += (
                copied_context,
                number,
                kind.copied,
                named,
                copied_at,
                because,
                correlated,
                length,
                data,
                _32,
                digest,
            )
            entries.append(Entry(kind.name, why, data, digest, kind.schema, name, correlation))
            records.append(RecordedEvent(context, seq, event, at_ns, cause))
        parts.append(_TRAILER)
        batch = Batch(context, epoch, head.seq + 1, head.digest, at_us, entries, self._actor_name)
        return Rows(join(parts), batch, records)
