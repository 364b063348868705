"""Followers of the log and the events that stop them, for people: positions, parked events, skipped events."""

from datetime import datetime
from typing import NamedTuple

import msgspec

from shared.log.database import Database


class FollowerSeen(NamedTuple):
    """A service that follows contexts, as it registered when it was last seen.

    Attributes:
        positions: context -> seq of the last event folded.
    """

    service: str
    positions: dict[str, int]
    seen_at: datetime


class Parked(NamedTuple):
    """An event that stopped a service: it could not be decoded or folded."""

    service: str
    context: str
    seq: int
    error: str
    at: datetime


class Skipped(NamedTuple):
    """An event that a service skips, by a person's decision."""

    service: str
    context: str
    seq: int
    reason: str
    by: str
    at: datetime


async def list_followers(database: Database) -> list[FollowerSeen]:
    """Returns all registered followers, by name."""
    async with database.reading() as connection:
        rows = await connection.fetch("select service, positions, seen_at from followers order by service")
    return [
        FollowerSeen(service, msgspec.json.decode(positions, type=dict[str, int]), seen_at)
        for service, positions, seen_at in rows
    ]


async def list_parked(database: Database) -> list[Parked]:
    """Returns all parked events, the oldest first."""
    async with database.reading() as connection:
        rows = await connection.fetch("select service, context, seq, error, at from parked order by at")
    return [Parked(*row) for row in rows]


async def list_skips(database: Database) -> list[Skipped]:
    """Returns all skipped events, in the order in which that was decided."""
    async with database.reading() as connection:
        rows = await connection.fetch("select service, context, seq, reason, by, at from skips order by at")
    return [Skipped(*row) for row in rows]
