"""Checks that models and migrations agree: `python -m tools.schema` migrates an empty database and compares."""

import asyncio
import tempfile
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from cli.embedded import EmbeddedPostgres
from cli.service_list import contexts
from shared.log.database import Database
from shared.log.migration import engine_of, migrate

ROOT = Path(__file__).parents[1]


async def check() -> None:
    """Migrates an empty database, then has Alembic list what it would change; anything is an error that names it."""
    with tempfile.TemporaryDirectory(prefix="koord-schema-") as folder:
        async with EmbeddedPostgres(Path(folder)) as postgres:
            database = Database(postgres.url)
            await migrate(database, contexts())
            await database.close()
            engine = engine_of(postgres.url)
            async with engine.connect() as connection:
                await connection.run_sync(_compare)
            await engine.dispose()


def _compare(connection: Connection) -> None:
    config = Config(ROOT / "alembic.ini")
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.attributes["connection"] = connection
    command.check(config)


if __name__ == "__main__":
    asyncio.run(check())
