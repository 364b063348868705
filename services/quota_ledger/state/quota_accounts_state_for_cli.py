"""The ledger's accounts alone as a State: the part of the ledger's snapshots that answers about quotas need.

The projection is a fold of the `quota` context alone, so it neither reads what the ledger observed nor checks pods.
"""

from typing import ClassVar

import msgspec

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.accounting.snapshot_schema import ProjectionSnapshot, restore_into
from services.quota_ledger.state.ledger_state import LedgerState
from shared.events import RecordedEvent


class ProjectionState:
    """A fold over `quota`; it restores what `LedgerState.encode` returned."""

    SCHEMA: ClassVar[int] = LedgerState.SCHEMA

    def __init__(self, projection: LedgerProjection) -> None:
        self.projection = projection
        self.positions: dict[str, int] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        self.projection.fold(record.event)
        self.positions[record.context] = record.seq

    def encode(self) -> bytes:
        """Raises TypeError: it is a part of a State, and no snapshot is made of it."""
        raise TypeError("the ledger writes the snapshots")

    def restore(self, data: bytes) -> None:
        """Fills an empty projection from a snapshot of the ledger."""
        restore_into(self.projection, msgspec.msgpack.decode(data, type=_Part).projection)


class _Part(msgspec.Struct, frozen=True):
    """The fields of the ledger's snapshot that are read; the others are skipped."""

    projection: ProjectionSnapshot
