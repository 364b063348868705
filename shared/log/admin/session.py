"""A database opened for one command and closed again, with errors that a person can act on. Not for services."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from asyncpg import PostgresError

from shared.errors import KoordError
from shared.log.database import Database, sqlstate, without_password
from shared.log.reader import LogReader


class DatabaseUnreachable(KoordError):
    """No server responds there.

    Attributes:
        what: without the remedy.
    """

    def __init__(self, dsn: str, error: object) -> None:
        self.what = f"Postgres at {without_password(dsn)} cannot be reached: {error}"
        super().__init__(f"{self.what}; start it, or correct KOORD_POSTGRES")


class DatabaseRefused(KoordError):
    """The server responds, but not as a migrated database of Koordstream would."""


_NO_TABLES = "`koord migrate` makes the tables"
_REMEDIES = {
    "3D000": "name another database in KOORD_POSTGRES, or create this one: `createdb`, then `koord migrate`",
    "3F000": _NO_TABLES,  # no such schema
    "42P01": _NO_TABLES,
    "42703": _NO_TABLES,  # no such column
    "42883": _NO_TABLES,  # no such function
    "53300": "too many connections: raise max_connections, or end some clients",
}
"""By the name that Postgres gives an error."""


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
        raise DatabaseUnreachable(dsn, error) from error
    except PostgresError as error:
        reason = str(error).partition("\n")[0]
        remedy = _REMEDIES.get(sqlstate(error), "the server's log may say more")
        raise DatabaseRefused(f"Postgres at {without_password(dsn)} refused: {reason}; {remedy}") from error
    finally:
        await database.close()


@asynccontextmanager
async def reading(dsn: str) -> AsyncIterator[LogReader]:
    """Opens the log of a database; raises as `opened` does."""
    async with opened(dsn) as database:
        yield LogReader(database)
