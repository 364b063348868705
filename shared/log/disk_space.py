"""The free share of the disk on which Postgres keeps the log, and the space that is reserved there.

Services run elsewhere, and Postgres does not tell how full its disk is.
"""

import asyncio
import shutil

from shared.log.database import Database


async def free_share(database: Database, path: str, gigabytes: float) -> float | None:
    """Returns the free share of the log's disk, 0 to 1; None when neither a path on it nor its size is known.

    Args:
        path: a folder on that disk, where this process can see it.
        gigabytes: size of the disk; what the database takes is subtracted.

    Raises:
        OSError: there is no such folder.
    """
    if path:
        return await free_share_at(path)
    if not gigabytes:
        return None
    async with database.reading() as connection:
        size: int = await connection.fetchval("select pg_database_size(current_database())")
    return max(0.0, 1.0 - size / (gigabytes * 10**9))


async def free_share_at(path: str) -> float:
    """Returns the free share of the disk on which a folder lies.

    Raises:
        OSError: there is no such folder.
    """
    usage = await asyncio.to_thread(shutil.disk_usage, path)
    return usage.free / usage.total


async def reserve_space(database: Database, context: str) -> None:
    """Takes 64 MiB of the disk, once for all writers (migration 0006)."""
    await _call(database, "koord_reserve_space", context)


async def release_space(database: Database, context: str) -> None:
    """Gives the reserved space back, for the copies that are appended before partitions are dropped."""
    await _call(database, "koord_release_space", context)


async def _call(database: Database, function: str, context: str) -> None:
    async with database.reading() as connection:
        await connection.fetchval(f"select {function}($1)", context)
