"""Brings the database to this release's schema. A service that runs never migrates, so it need not load this."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, pool, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from shared.log.database import MIGRATIONS, SERVER_SETTINGS, Database, parsed_dsn


def engine_of(dsn: str) -> AsyncEngine:
    """Returns Alembic's way to a database: it runs on SQLAlchemy.

    Raises:
        BadDatabaseUrl: the DSN is none of Postgres.
    """
    parsed_dsn(dsn)
    url = make_url(dsn).set(drivername="postgresql+asyncpg", query={})
    arguments = {"dsn": dsn, "server_settings": SERVER_SETTINGS, "timeout": 5}  # sslmode and its like are in the DSN
    return create_async_engine(url, poolclass=pool.NullPool, connect_args=arguments)


async def migrate(database: Database, contexts: dict[str, int]) -> None:
    """Brings the schema to this release and declares the contexts (name -> rows a partition holds). Safe to repeat.

    Raises:
        DatabaseDenied: the login is wrong, or may not.
        PostgresError: the server refuses for another reason.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))

    def upgrade(connection: Connection) -> None:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    engine = engine_of(database.dsn)
    try:
        with database.denials():
            try:
                async with engine.begin() as connection:
                    await connection.execute(
                        text("select pg_advisory_xact_lock(hashtextextended('koordstream migrations', 0))")
                    )
                    await connection.run_sync(upgrade)
            except DBAPIError as error:
                raise _of_driver(error) from error
    finally:
        await engine.dispose()
    async with database.transaction() as log:
        for context, rows in sorted(contexts.items()):
            await log.fetchval("select koord_declare_context($1, $2)", context, rows)


def _of_driver(error: DBAPIError) -> BaseException:
    """Returns the driver's error that SQLAlchemy has wrapped, so that it is handled as in every other statement."""
    return (error.orig and error.orig.__cause__) or error
