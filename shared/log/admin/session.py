"""A database opened for one command and closed again, with errors that a person can act on. Not for services."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.log.database import FAILURES, Database
from shared.log.reader import LogReader
from shared.log.unusable_database import unusable


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
    except FAILURES as error:
        if isinstance(error, OSError) and error.filename is not None:  # a file of the command's own
            raise
        raise unusable(dsn, error) from error
    finally:
        await database.close()


@asynccontextmanager
async def reading(dsn: str) -> AsyncIterator[LogReader]:
    """Opens the log of a database; raises as `opened` does."""
    async with opened(dsn) as database:
        yield LogReader(database)
