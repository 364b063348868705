"""The chain that makes a log tamper-evident: each row's digest covers the row and the digest before it.

    digest = SHA-256(previous, context, seq, type, schema, key, at, actor, cause, correlation, data)

Integers are big-endian (seq u64, schema u16, `at` i64 microseconds), texts and `data` are a u32 length and the bytes,
null is the length 2^32-1; the first previous digest is 32 zero bytes. Twenty lines in any language can check a log.
"""

from hashlib import sha256
from struct import Struct

GENESIS = bytes(32)
"""The digest before the first row of every context."""

U16, U32, U64, I64 = Struct(">H"), Struct(">I"), Struct(">Q"), Struct(">q")
NULL = U32.pack(2**32 - 1)


def text(value: str | None) -> bytes:
    """Encodes a text for the digest: u32 length and UTF-8, or the null length."""
    if value is None:
        return NULL
    encoded = value.encode()
    return U32.pack(len(encoded)) + encoded


class Chain:
    """Digests of consecutive rows of one context that share instant and actor, for verification (`copy_encoding` writes
    them).
    """

    def __init__(self, context: str, previous: bytes, *, at_us: int, actor: str) -> None:
        self.digest = previous
        self._context = text(context)
        self._at_actor = I64.pack(at_us) + text(actor)
        self._types: dict[tuple[str, int], bytes] = {}

    def add(
        self, seq: int, kind: str, schema: int, key: str, cause: str | None, correlation: str | None, data: bytes
    ) -> bytes:
        """Adds the next row. Returns its digest."""
        kind_schema = self._types.get((kind, schema))
        if kind_schema is None:
            kind_schema = self._types[kind, schema] = text(kind) + U16.pack(schema)
        named = key.encode()
        why = NULL if cause is None else text(cause)
        correlated = NULL if correlation is None else text(correlation)
        row = (
            self.digest, self._context, U64.pack(seq), kind_schema, U32.pack(len(named)), named, self._at_actor, why, correlated,
            U32.pack(len(data)), data,
        )  # fmt: skip
        self.digest = sha256(b"".join(row)).digest()
        return self.digest
