"""The state of the audit service: its last checkpoint. The positions of the relays are in the streams themselves."""

from typing import ClassVar

import msgspec

from shared.events import RecordedEvent
from shared.events.audit import CheckpointSigned


class AuditState:
    """A fold over its own `audit`; of every other context it holds the position alone.

    Attributes:
        signed: the last checkpoint, and its seq and instant.
    """

    SCHEMA: ClassVar[int] = 1

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.signed: CheckpointSigned | None = None
        self.signed_seq = 0
        self.signed_at_ns = 0

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        if isinstance(record.event, CheckpointSigned):
            self.signed, self.signed_seq, self.signed_at_ns = record.event, record.seq, record.at_ns
        self.positions[record.context] = record.seq

    def encode(self) -> bytes:
        """Canonical: see `shared.fold.State`."""
        positions = {context: seq for context, seq in self.positions.items() if seq}
        return _ENCODER.encode(_Stored(positions, self.signed, self.signed_seq, self.signed_at_ns))

    def restore(self, data: bytes) -> None:
        """Takes over a stored State."""
        stored = _DECODER.decode(data)
        self.positions, self.signed = stored.positions, stored.signed
        self.signed_seq, self.signed_at_ns = stored.signed_seq, stored.signed_at_ns


class _Stored(msgspec.Struct):
    """The stored form of the State."""

    positions: dict[str, int]
    signed: CheckpointSigned | None
    signed_seq: int
    signed_at_ns: int


_ENCODER = msgspec.msgpack.Encoder(order="sorted")
_DECODER = msgspec.msgpack.Decoder(_Stored)
