"""Checking a log against its own chain: the first row that does not fit is named.

Every row's digest covers the one before it, so an altered, removed, added or reordered row breaks the chain where it
stands. A log that was cut short at its end still fits; a signed checkpoint outside the database shows that. At its
beginning only whole partitions may be gone: that is what retention drops.
"""

from typing import NamedTuple

from shared.log.digest import GENESIS, Chain
from shared.log.reader import LogReader, Row, at_us


class Verified(NamedTuple):
    """What a check of one context found.

    Attributes:
        checked: how many rows fit before the first that does not, or all.
        first: seq of the oldest kept row; the chain is checked from its predecessor's digest on only if that is seq 1.
        broken: seq of the first row that does not fit; 0 when all do.
        reason: what does not fit there.
    """

    context: str
    checked: int
    first: int
    broken: int = 0
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether every row fits."""
        return self.broken == 0


async def verify(reader: LogReader, context: str) -> Verified:
    """Walk a context from its oldest row to its head."""
    checked, first = 0, 0
    previous, expected = GENESIS, 1
    async for row in reader.rows(context=context):
        if not checked:
            first = row.seq
            if await reader.oldest(context) is None:
                return Verified(context, 0, first, first - 1, f"is missing; the oldest row there is {first}")
        elif row.seq != expected:
            return Verified(context, checked, first, expected, f"is missing; the next row there is {row.seq}")
        if checked or row.seq == 1:
            found = digest_of(row, previous)
            if found != row.digest:
                reason = f"{row.type} {row.key}: the row does not have the digest it was written with"
                return Verified(context, checked, first, row.seq, reason)
        previous = row.digest
        expected = row.seq + 1
        checked += 1
    return Verified(context, checked, first)


def digest_of(row: Row, previous: bytes) -> bytes:
    """The digest a stored row must have after `previous`."""
    chain = Chain(row.context, previous, at_us=at_us(row.at), actor=row.actor)
    return chain.add(row.seq, row.type, row.schema, row.key, row.cause, row.correlation, row.data)
