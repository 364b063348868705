"""Checkpoints: a text for signing that lists the heads of all contexts at an instant, and its table next to the log.

    koordstream checkpoint 1
    source koordstream
    at 2026-07-30T10:00:00.000000Z
    audit 12 9f86d081884c7d65…
    cluster 4711 2c26b46b68ffc68f…

A signature covers exactly these bytes.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from shared.errors import KoordError
from shared.kube.instants import SECOND, instant_text
from shared.log.database import Database
from shared.log.position import Position

TITLE = "koordstream checkpoint 1"


class BadCheckpoint(KoordError):
    """A text is not a checkpoint of Koordstream, or not a genuine one."""


class Statement(NamedTuple):
    """Contents of a checkpoint.

    Attributes:
        at: instant, RFC 3339 with microseconds.
        heads: context -> its last event then.
    """

    source: str
    at: str
    heads: dict[str, Position]


class Checkpoint(msgspec.Struct, frozen=True):
    """A signed statement, as it is written into files, as JSON; fields as in `CheckpointSigned`."""

    statement: str
    public_key: str
    signature: str


def statement_of(source: str, at_ns: int, heads: Mapping[str, Position]) -> str:
    """Returns the text for signing; contexts in order, those without an event left out."""
    lines = [TITLE, f"source {source}", f"at {instant_text(at_ns // 1000 * 1000)}"]
    lines += [f"{context} {head.seq} {head.digest.hex()}" for context, head in sorted(heads.items()) if head.seq]
    return "\n".join(lines) + "\n"


def read_statement(text: str) -> Statement:
    """Parses a signed text.

    Raises:
        BadCheckpoint: it has another form.
    """
    title, *lines = text.removesuffix("\n").split("\n")
    if title != TITLE:
        raise BadCheckpoint(f"not a checkpoint: it begins with {title[:80]!r} and not with {TITLE!r}")
    try:
        source, at, *heads = lines
        found = {}
        for line in heads:
            context, seq, digest = line.split(" ")
            found[context] = Position(int(seq), bytes.fromhex(digest))
    except ValueError as error:
        raise BadCheckpoint(f"not a checkpoint: {error}") from error
    return Statement(source.removeprefix("source "), at.removeprefix("at "), found)


def read_checkpoints(data: bytes) -> list[Checkpoint]:
    """Reads the checkpoints of a file: one JSON object, or one a line.

    Raises:
        BadCheckpoint: it holds something else, or nothing.
    """
    try:
        lines = [line for line in data.splitlines() if line.strip()]
        found = [msgspec.json.decode(line, type=Checkpoint) for line in lines]
    except msgspec.DecodeError:
        try:
            found = [msgspec.json.decode(data, type=Checkpoint)]  # one object formatted over several lines
        except msgspec.DecodeError as error:
            raise BadCheckpoint(f"not a checkpoint: {error}") from error
    if not found:
        raise BadCheckpoint("not a checkpoint: the file is empty")
    return found


async def store(database: Database, seq: int, at_ns: int, checkpoint: Checkpoint, *, kept: timedelta) -> None:
    """Stores a checkpoint under the seq of its event in `audit`. Idempotent. Deletes old ones."""
    heads = {
        context: [head.seq, head.digest.hex()] for context, head in read_statement(checkpoint.statement).heads.items()
    }
    at = datetime.fromtimestamp(at_ns // SECOND, UTC).replace(microsecond=at_ns % SECOND // 1000)
    insert = (
        "insert into checkpoints (seq, at, heads, statement, public_key, signature) values ($1, $2, $3::jsonb, $4, $5, $6) "
        "on conflict do nothing"
    )
    signed = (checkpoint.statement, checkpoint.public_key, checkpoint.signature)
    async with database.transaction() as connection:
        await connection.execute(insert, seq, at, msgspec.json.encode(heads).decode(), *signed)
        await connection.execute("delete from checkpoints where at < clock_timestamp() - $1::interval", kept)


async def newest(database: Database) -> Checkpoint | None:
    """Returns the last checkpoint in the table."""
    sql = "select statement, public_key, signature from checkpoints order by seq desc limit 1"
    async with database.reading() as connection:
        row = await connection.fetchrow(sql)
    return Checkpoint(*row) if row else None
