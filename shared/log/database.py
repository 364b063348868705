"""Connections to the log's database: one engine a process, dedicated connections for writers, settings that detect a
dead peer.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy import Connection, pool, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from shared.errors import KoordError
from shared.log.kept_connection import KeptConnection

FAILURES = (
    SQLAlchemyError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what a COPY may end with whose session is ended
    OSError,
    TimeoutError,
)
"""Exceptions of a statement when the server is away, restarts, or refuses it."""

UNREACHABLE = (
    SQLAlchemyError,
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
    """The server refuses the login, or an operation of the login."""

    def __init__(self, dsn: str, reason: object) -> None:
        super().__init__(
            f"Postgres at {without_password(dsn)} denies it: {reason}; the rights of a login are those of its service's manifest:  "
            "`koord migrate` grants them, and `koord credentials check` reports whether the login is right"
        )


_DENIED = frozenset({"42501", "28000", "28P01"})  # insufficient privilege; no such login; wrong password


def sqlstate(error: BaseException) -> str:
    """Returns the five characters by which Postgres names an error; empty when the error is not from Postgres."""
    original = getattr(error, "orig", None) or error
    return str(getattr(original, "sqlstate", "") or "")


def without_password(dsn: str) -> str:
    """Returns a DSN without its password, fit to be shown."""
    try:
        return make_url(dsn).set(query={}).render_as_string(hide_password=True)
    except (SQLAlchemyError, ValueError):
        return "KOORD_POSTGRES"


_SUCH_AS = "give a URL such as postgresql://user@127.0.0.1:5432/koordstream"


def _parsed(dsn: str) -> URL:
    try:
        url = make_url(dsn)
    except (SQLAlchemyError, ValueError) as error:  # a port that is no number
        raise BadDatabaseUrl(f"KOORD_POSTGRES is no URL; {_SUCH_AS}") from error
    if url.get_backend_name() != "postgresql":
        raise BadDatabaseUrl(f"KOORD_POSTGRES is {without_password(dsn)!r}; {_SUCH_AS}")
    return url.set(drivername="postgresql+asyncpg")


def sqlalchemy_url(dsn: str) -> str:
    """Returns SQLAlchemy's URL of a `postgresql://` DSN, without its options (such as sslmode), which `Database` reads.

    Raises:
        BadDatabaseUrl: it is something else.
    """
    return _parsed(dsn).set(query={}).render_as_string(hide_password=False)


class Database:
    """The database of one process: a small pool for reads, and dedicated connections that no pool hands on.

    The DSN may configure TLS: `?sslmode=verify-full&sslrootcert=/etc/koord/ca.crt`, by libpq's names.
    """

    def __init__(self, dsn: str, *, pool_size: int = 4, application: str = "koordstream") -> None:
        url = sqlalchemy_url(dsn)
        self._dsn = dsn
        arguments: dict[str, Any] = {
            "dsn": dsn,  # the driver reads sslmode and its like from it
            "server_settings": {**SERVER_SETTINGS, "application_name": application},
            "timeout": 5,
        }
        self.engine: AsyncEngine = create_async_engine(
            url, pool_size=pool_size, max_overflow=2, pool_pre_ping=True, connect_args=arguments
        )
        self._dedicated = create_async_engine(
            url, poolclass=pool.NullPool, connect_args=arguments, isolation_level="AUTOCOMMIT"
        )

        self.kept = KeptConnection(self.dedicated, driver)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Yields a pooled connection without a transaction: each statement sees what is committed by then.

        Raises:
            DatabaseDenied: the login is wrong, or has no right to the statement.
        """
        with self.denials():
            async with self.engine.connect() as connection:
                yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    async def dedicated(self) -> AsyncConnection:
        """Opens a connection of the caller's own, in autocommit, with keepalive on its socket. The caller closes it.

        Raises:
            DatabaseDenied: the login is wrong.
        """
        with self.denials():
            connection = await self._dedicated.connect()
        _keep_alive(await driver(connection))
        return connection

    @contextlib.contextmanager
    def denials(self) -> Iterator[None]:
        """Turns a refusal by the server into `DatabaseDenied`: waiting would not change it."""
        try:
            yield
        except (SQLAlchemyError, asyncpg.PostgresError) as error:
            if sqlstate(error) not in _DENIED:
                raise
            raise DatabaseDenied(self._dsn, str(getattr(error, "orig", None) or error).partition("\n")[0]) from error

    async def close(self) -> None:
        """Closes the pools, without waiting for a server that hangs."""
        await self.kept.close()
        for engine in (self.engine, self._dedicated):
            with contextlib.suppress(*FAILURES):
                async with asyncio.timeout(CLOSING_DEADLINE_S):
                    await engine.dispose()


async def driver(connection: AsyncConnection) -> Any:
    """Returns the asyncpg connection below: for COPY and for page reads, where a row must cost next to nothing."""
    raw = await connection.get_raw_connection()
    return raw.driver_connection


def _keep_alive(connection: Any) -> None:
    transport = connection._transport  # noqa: SLF001  asyncpg has no public way to its socket
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in _KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)


async def migrate(database: Database, contexts: dict[str, int]) -> None:
    """Brings the schema to this release and declares the contexts (name -> rows a partition holds). Safe to repeat."""
    from alembic import command  # a service that runs never migrates: it need not load this
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))

    def upgrade(connection: Connection) -> None:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    async with database.engine.begin() as connection:
        await connection.execute(text("select pg_advisory_xact_lock(hashtextextended('koordstream migrations', 0))"))
        await connection.run_sync(upgrade)
    async with database.engine.begin() as connection:
        for context, rows in sorted(contexts.items()):
            await connection.execute(
                text("select koord_declare_context(:context, :rows)"), {"context": context, "rows": rows}
            )
