"""Verifies a log against its own digest chain and against signed checkpoints; names the first row that does not fit.

Every row's digest covers the one before it, so an altered, removed, added or reordered row breaks the chain at its
place. A log that was cut short at its end, or rewritten with all its digests, still fits its chain; a checkpoint kept
outside the database shows that. At its beginning only whole partitions may be missing: retention drops those.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from shared.log.hash_chain import GENESIS, Chain
from shared.log.position import Position
from shared.log.raw_rows import RawRow
from shared.log.reader import PAGE, LogReader, Row, at_us


class Verified(NamedTuple):
    """Result of verifying one context.

    Attributes:
        checked: how many rows fit before the first that does not, or all.
        first: seq of the oldest kept row; the chain is checked from its predecessor's digest on only if that is seq 1.
        broken: seq of the first row that does not fit; 0 when all do.
        reason: the mismatch there.
        compared: how many heads of checkpoints agree with the log.
        dropped: how many heads of checkpoints are older than the oldest kept row and therefore cannot be compared.
    """

    context: str
    checked: int
    first: int
    broken: int = 0
    reason: str = ""
    compared: int = 0
    dropped: int = 0

    @property
    def ok(self) -> bool:
        """True when every row fits."""
        return self.broken == 0


async def verify(
    reader: LogReader,
    context: str,
    signed: Iterable[Position] = (),
    advance: Callable[[int], None] = lambda _rows: None,
) -> Verified:
    """Walks a context from its oldest row to its head.

    Args:
        signed: its heads, as genuine checkpoints recorded them.
        advance: called now and then with the number of rows that were checked since the last call.
    """
    heads: dict[int, set[bytes]] = {}
    for head in signed:
        heads.setdefault(head.seq, set()).add(head.digest)
    found = await _walk(reader, context, heads, advance)
    if not found.ok:
        return found
    dropped = sum(seq < found.first for seq in heads)
    last = found.first + found.checked - 1
    if later := [seq for seq in heads if seq > last]:
        reason = f"is missing: the log ends before it, and a checkpoint recorded that it reached {max(later)}; it was cut short"
        return found._replace(broken=max(last, 0) + 1, reason=reason, dropped=dropped)
    return found._replace(compared=len(heads) - dropped, dropped=dropped)


async def _walk(
    reader: LogReader, context: str, heads: dict[int, set[bytes]], advance: Callable[[int], None]
) -> Verified:
    checked, first, agreed = 0, 0, 0
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
        if not heads.get(row.seq, set()) <= {row.digest}:
            since = f"between {agreed + 1} and {row.seq}" if agreed else f"up to {row.seq}"
            reason = f"is not what a checkpoint recorded there: rows {since} were rewritten, with digests that fit each other"
            return Verified(context, checked, first, row.seq, reason)
        if row.seq in heads:
            agreed = row.seq
        previous = row.digest
        expected = row.seq + 1
        checked += 1
        if checked % PAGE == 0:
            advance(PAGE)
    return Verified(context, checked, first)


def digest_of(row: Row, previous: bytes) -> bytes:
    """Returns the digest that a stored row must have after `previous`."""
    chain = Chain(row.context, previous, at_us=at_us(row.at), actor=row.actor)
    return chain.add(row.seq, row.type, row.schema, row.key, row.cause, row.correlation, row.data)


def raw_digest_of(row: RawRow, context: str, previous: bytes) -> bytes:
    """Returns the same for a row that was read as stored."""
    chain = Chain(context, previous, at_us=row.at_us, actor=row.actor)
    return chain.add(row.seq, row.type, row.schema, row.key, row.cause, row.correlation, row.data)
