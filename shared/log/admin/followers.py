"""Followers of the log and the events that stop them, for people: positions, parked events, skipped events."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select

from shared.log.database import Database
from shared.log.tables import followers, parked, skips


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
    query = select(followers.c.service, followers.c.positions, followers.c.seen_at).order_by(followers.c.service)
    async with database.reading() as connection:
        return [FollowerSeen(*row) for row in await connection.execute(query)]


async def list_parked(database: Database) -> list[Parked]:
    """Returns all parked events, the oldest first."""
    columns = (parked.c.service, parked.c.context, parked.c.seq, parked.c.error, parked.c.at)
    async with database.reading() as connection:
        return [Parked(*row) for row in await connection.execute(select(*columns).order_by(parked.c.at))]


async def list_skips(database: Database) -> list[Skipped]:
    """Returns all skipped events, in the order in which that was decided."""
    columns = (skips.c.service, skips.c.context, skips.c.seq, skips.c.reason, skips.c.by, skips.c.at)
    async with database.reading() as connection:
        return [Skipped(*row) for row in await connection.execute(select(*columns).order_by(skips.c.at))]
