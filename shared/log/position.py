"""Position of a follower in a context, and the error when the log disagrees with it."""

from typing import NamedTuple

from shared.errors import KoordError
from shared.log.hash_chain import GENESIS

UNKNOWN = b""
"""The digest before the oldest kept event, whose row retention has dropped."""


class Position(NamedTuple):
    """The last event folded: its seq, and the digest that the log had there."""

    seq: int = 0
    digest: bytes = GENESIS


class LogRewound(KoordError):
    """The log's digest at a folded seq differs: the database was put back to an earlier point, or a row was altered."""

    def __init__(self, context: str, position: Position, found: bytes | None) -> None:
        there = "no such event" if found is None else f"digest {found.hex()[:16]}"
        super().__init__(
            f"{context}/{position.seq} was folded with digest {position.digest.hex()[:16]} and the log has {there}: "
            "the database was restored to an earlier point or altered; the state is dropped and folded anew "
            f"(see koord audit verify --log {context})"
        )
        self.context = context
