"""Connections to the log's database: one pool a process, dedicated connections for writers, settings that detect a
dead peer.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import asyncpg

from shared.errors import KoordError
from shared.log.kept_connection import KeptConnection

FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what a COPY may end with whose session is ended
    OSError,
    TimeoutError,
)
"""Exceptions of a statement when the server is away, restarts, or refuses it."""

UNREACHABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""Those of them that may pass by waiting: the server is away, starts, stops, or has ended the session."""

MIGRATIONS = Path(__file__).parents[2] / "migrations"
"""The folder of Alembic's scripts."""

CLOSING_DEADLINE_S = 5.0

RELEASE_DEADLINE_S = 2.0
"""For the server's answer to a statement that was given up; after it the connection is ended."""

SPARE_CONNECTIONS = 2
"""Connections of the pool besides its size: a read that waits for another could wait for itself."""

# With these Postgres notices within seconds that a client is gone, and releases its lock.
SERVER_SETTINGS = {
    "application_name": "koordstream",
    "tcp_keepalives_idle": "1",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "3000",
    "client_connection_check_interval": "1000",
    "jit": "off",
    # A page is a range of an index in its order. Without statistics, as on a fresh partition, the planner would fetch
    # it as a bitmap and sort the rows with all their data.
    "enable_bitmapscan": "off",
    "max_parallel_workers_per_gather": "0",
}
_KEEPALIVE = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 3000}


class BadDatabaseUrl(KoordError):
    """KOORD_POSTGRES names no PostgreSQL database."""


class DatabaseDenied(KoordError):
    """The server refuses the login, or an operation of the login.

    Attributes:
        is_login: the login itself.
        reason: by the server.
    """

    def __init__(self, dsn: str, reason: object, state: str = "") -> None:
        self.is_login, self.reason = state in _NO_LOGIN, reason
        if self.is_login:
            remedy = (
                "correct user and password in KOORD_POSTGRES; logins of `koord credentials` are in env/*.env of their "
                "folder, and `koord credentials check` tries them"
            )
            super().__init__(f"Postgres at {without_password(dsn)} does not accept the login: {reason}; {remedy}")
            return
        super().__init__(
            f"Postgres at {without_password(dsn)} denies it: {reason}; the rights of a login are those of its service's manifest: "
            "`koord migrate` grants them, and `koord credentials check` reports whether the login is right"
        )


_NO_LOGIN = frozenset({"28000", "28P01"})  # no such login; wrong password
_DENIED = frozenset({"42501", *_NO_LOGIN})  # insufficient privilege


def sqlstate(error: BaseException) -> str:
    """Returns the five characters by which Postgres names an error; empty when the error is not from Postgres."""
    return str(getattr(error, "sqlstate", "") or "")


def without_password(dsn: str) -> str:
    """Returns a DSN without its password, fit to be shown."""
    try:
        url = urlsplit(dsn)
    except ValueError:
        return "KOORD_POSTGRES"
    if not url.scheme:
        return "KOORD_POSTGRES"
    user, at, place = url.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    hidden = f"{name}:***" if colon else name
    return f"{url.scheme}://{hidden}{at}{place}{url.path}"


_SUCH_AS = "give a URL such as postgresql://user@127.0.0.1:5432/koordstream"


def parsed_dsn(dsn: str) -> SplitResult:
    """Returns the parts of a `postgresql://` DSN.

    Raises:
        BadDatabaseUrl: it is something else.
    """
    try:
        url = urlsplit(dsn)
        _ = url.port
    except ValueError as error:  # a port that is no number
        raise BadDatabaseUrl(f"KOORD_POSTGRES is no URL; {_SUCH_AS}") from error
    if not url.scheme or "://" not in dsn:
        raise BadDatabaseUrl(f"KOORD_POSTGRES is no URL; {_SUCH_AS}")
    if url.scheme != "postgresql":
        raise BadDatabaseUrl(f"KOORD_POSTGRES is {without_password(dsn)!r}; {_SUCH_AS}")
    return url


class Database:
    """The database of one process: a small pool for reads, and dedicated connections that no pool hands on.

    The DSN may configure TLS: `?sslmode=verify-full&sslrootcert=/etc/koord/ca.crt`, by libpq's names.
    """

    def __init__(self, dsn: str, *, pool_size: int = 4, application: str = "koordstream") -> None:
        """Connects at the first use."""
        parsed_dsn(dsn)
        self.dsn = dsn
        self._arguments: dict[str, Any] = {
            "dsn": dsn,
            "server_settings": {**SERVER_SETTINGS, "application_name": application},
            "timeout": 5,
        }
        self._most = pool_size + SPARE_CONNECTIONS
        self._pool: asyncpg.Pool | None = None
        self.kept = KeptConnection(self.dedicated)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Any]:
        """Yields a pooled connection without a transaction: each statement sees what is committed by then.

        Raises:
            DatabaseDenied: the login is wrong, or has no right to the statement.
        """
        with self.denials():
            pool = await self._connected_pool()
            connection = await pool.acquire()
            try:
                yield connection
            except asyncio.CancelledError:  # the answer may still arrive, and a server that hangs is not waited for
                connection.terminate()
                raise
            finally:
                with contextlib.suppress(*FAILURES):
                    await pool.release(connection, timeout=RELEASE_DEADLINE_S)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Yields a pooled connection in a transaction, which is committed at the end; raises as `reading`."""
        async with self.reading() as connection, connection.transaction():
            yield connection

    async def dedicated(self) -> Any:
        """Opens a connection of the caller's own, with keepalive on its socket. The caller closes it.

        Raises:
            DatabaseDenied: the login is wrong.
        """
        with self.denials():
            connection = await asyncpg.connect(**self._arguments)
        _keep_alive(connection)
        return connection

    @contextlib.contextmanager
    def denials(self) -> Iterator[None]:
        """Turns a refusal by the server into `DatabaseDenied`: waiting would not change it."""
        try:
            yield
        except asyncpg.PostgresError as error:
            if sqlstate(error) not in _DENIED:
                raise
            raise DatabaseDenied(self.dsn, str(error).partition("\n")[0], sqlstate(error)) from error

    async def close(self) -> None:
        """Closes the connections, without waiting for a server that hangs."""
        await self.kept.close()
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(CLOSING_DEADLINE_S):
                await pool.close()
        except FAILURES:
            pool.terminate()

    async def _connected_pool(self) -> asyncpg.Pool:
        """Returns the pool; it is made in the event loop that uses it."""
        if self._pool is None:
            # A session's settings are never changed, so a connection that comes back needs no reset.
            self._pool = asyncpg.create_pool(min_size=0, max_size=self._most, reset=_as_it_is, **self._arguments)
        return await self._pool


async def _as_it_is(_connection: Any) -> None:
    """Leaves a connection's session as it is."""


def _keep_alive(connection: Any) -> None:
    transport = connection._transport  # noqa: SLF001  asyncpg has no public way to its socket
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in _KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
