"""Messages that no service sends: forged announcements of a context, and bodies that are no message at all."""

import random

import msgspec

from shared.events import Event
from shared.log.announcements import Batch, Beacon, Entry, encode
from shared.log.hash_chain import GENESIS, Chain
from shared.log.position import Position

MAX_PAYLOAD = 1_048_576
"""Bytes of the largest message that the bus accepts."""

FORGER = "forger"

_random = random.Random(7).randbytes

BODIES = (
    b"",
    b"\x00",
    b"null",
    b'{"a":' * 20_000,
    b"\x91" * 20_000,
    *(_random(size) for size in (1, 16, 1024, 65_536)),
)
"""Empty, nested too deeply, random."""

OVERSIZED = _random(MAX_PAYLOAD)


def chained(context: str, after: Position, event: Event, epoch: int = 1) -> Batch:
    """Returns a batch that continues a log, as a login with that log's own subjects could make one."""
    chain, kind, data = (
        Chain(context, after.digest, at_us=1, actor=FORGER),
        event.type_name(),
        msgspec.json.encode(event),
    )
    digest = chain.add(after.seq + 1, kind, event.SCHEMA, event.key, None, None, data)
    entry = Entry(kind, None, data, digest, event.SCHEMA, event.key)
    return Batch(context, epoch, after.seq + 1, after.digest, 1, [entry], FORGER)


def forgeries(context: str, other: str, head: Position, epoch: int, event: Event) -> dict[str, list[bytes]]:
    """Returns announcements of a context by what is wrong with them.

    Args:
        other: another context.
        head, epoch: of the context's log.
        event: what the forged batches contain.
    """
    fits = chained(context, head, event)
    replace = msgspec.structs.replace
    foreign = replace(chained(other, Position(), event), first=1, previous=GENESIS)
    return {
        "nothing": [b""],
        "random bytes": [_random(size) for size in (1, 16, 1024, 65_536)],
        "oversized": [encode(replace(fits, actor="x" * 900_000)), bytes(1_000_000)],
        "of another context": [encode(foreign), encode(Beacon(other, 2**62, 2**62, bytes(32)))],
        "beyond every number": [
            encode(replace(fits, first=2**64 - 1)),
            encode(Beacon(context, epoch, 2**64 - 1, bytes(32))),
            encode(replace(fits, at_us=2**63)),
        ],
        "without events": [encode(replace(fits, entries=[]))],
        "far ahead": [
            encode(Beacon(context, 2**62, 2**62, bytes(32))),
            encode(replace(fits, epoch=2**62, first=2**62)),
        ],
        "wrong digest": [encode(replace(fits, entries=[replace(fits.entries[0], key="x")]))],
        "well chained": [encode(fits), encode(replace(fits, epoch=2**62))],
        "another head": [encode(Beacon(context, epoch, head.seq, bytes(32)))],
    }
