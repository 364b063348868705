"""Errors of a database at its first use, with what a person can do about each: no server there, or one that refuses."""

import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from asyncpg import CannotConnectNowError

from shared.errors import KoordError, fault_of
from shared.log.database import UNREACHABLE, sqlstate, without_password
from shared.unreachable import remedy_of_hang

_NO_TABLES = "`koord migrate` makes the tables"
OF_A_HANG = remedy_of_hang("KOORD_POSTGRES")
"""Remedy for a server that does not respond."""
_REMEDIES = {
    "3D000": "name another database in KOORD_POSTGRES, or create this one: `createdb`, then `koord migrate`",
    "3F000": _NO_TABLES,  # no such schema
    "42P01": _NO_TABLES,
    "42703": _NO_TABLES,  # no such column
    "42883": _NO_TABLES,  # no such function
    "53300": "too many connections: raise max_connections, or end some clients",
}
"""By the name that Postgres gives an error."""


class DatabaseUnreachable(KoordError):
    """No server responds there.

    Attributes:
        what: without the remedy.
        remedy: what to do.
    """

    def __init__(self, dsn: str, error: object, remedy: str = "start it, or correct KOORD_POSTGRES") -> None:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        if isinstance(error, Exception) and not str(reason):
            reason = fault_of(error)
        self.what = f"Postgres at {without_password(dsn)} cannot be reached: {reason}"
        self.remedy = remedy
        super().__init__(f"{self.what}; {remedy}")


class DatabaseRefused(KoordError):
    """The server responds, but not as a migrated database of Koordstream would."""

    def __init__(self, dsn: str, error: BaseException) -> None:
        reason = str(error).partition("\n")[0]
        remedy = _REMEDIES.get(sqlstate(error), "the server's log may say more")
        super().__init__(f"Postgres at {without_password(dsn)} refused: {reason}; {remedy}")


def unusable(dsn: str, error: BaseException) -> DatabaseUnreachable | DatabaseRefused:
    """Returns the error that stands for one of `FAILURES`."""
    if isinstance(error, FileNotFoundError) and (authority := _missing_authority(dsn)):
        return DatabaseUnreachable(
            dsn, f"there is no file {authority}", "correct PGSSLROOTCERT, or sslrootcert of the URL"
        )
    if isinstance(error, TimeoutError):
        return DatabaseUnreachable(dsn, error, OF_A_HANG)
    if isinstance(error, CannotConnectNowError):
        return DatabaseUnreachable(dsn, error, "it starts or stops: try again in some seconds")
    return DatabaseUnreachable(dsn, error) if isinstance(error, UNREACHABLE) else DatabaseRefused(dsn, error)


def _missing_authority(dsn: str) -> str:
    """Returns the file of the server's authority that is configured and does not exist; empty otherwise."""
    named = parse_qs(urlsplit(dsn).query).get("sslrootcert", [os.environ.get("PGSSLROOTCERT", "")])[0]
    return named if named and not Path(named).exists() else ""
