"""A database opened for one command and closed again, with errors that a person can act on. Not for services."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asyncpg import PostgresError

from shared.errors import KoordError
from shared.log.database import Database, without_password
from shared.log.reader import LogReader


class DatabaseUnreachable(KoordError):
    """No server responds there."""


class DatabaseRefused(KoordError):
    """The server responds, but not as a migrated database of Koordstream would."""


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Database]:
    """Opens a database and closes it at the end.

    Raises:
        DatabaseUnreachable: no server there.
        DatabaseRefused: no such database, no permission, no such table.
    """
    database = Database(dsn, pool_size=1, application="koord command")
    try:
        yield database
    except BrokenPipeError:  # of the command's own output: its reader has closed the pipe
        raise
    except (OSError, TimeoutError) as error:
        raise DatabaseUnreachable(f"Postgres at {without_password(dsn)} cannot be reached: {error}") from error
    except PostgresError as error:
        reason = str(error).partition("\n")[0]
        raise DatabaseRefused(
            f"Postgres at {without_password(dsn)} refused: {reason}; `koord migrate` makes the tables"
        ) from error
    finally:
        await database.close()


@asynccontextmanager
async def reading(dsn: str) -> AsyncIterator[LogReader]:
    """Opens the log of a database; raises as `opened` does."""
    async with opened(dsn) as database:
        yield LogReader(database)
