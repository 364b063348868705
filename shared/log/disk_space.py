"""The free share of the disk on which Postgres keeps the log: services run elsewhere, and Postgres does not tell it."""

import asyncio
import shutil

from sqlalchemy import text

from shared.log.database import Database


async def free_share(database: Database, path: str, gigabytes: float) -> float | None:
    """Returns the free share of the log's disk, 0 to 1; None when neither a path on it nor its size is known.

    Args:
        path: a folder on that disk, where this process can see it.
        gigabytes: size of the disk; what the database takes is subtracted.
    """
    if path:
        usage = await asyncio.to_thread(shutil.disk_usage, path)
        return usage.free / usage.total
    if not gigabytes:
        return None
    async with database.reading() as connection:
        size: int = await connection.scalar(text("select pg_database_size(current_database())"))
    return max(0.0, 1.0 - size / (gigabytes * 10**9))
