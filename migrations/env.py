"""Alembic's entry: migrates the database of `KOORD_POSTGRES`, or the connection that the caller hands in."""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection

from shared.log.migration import engine_of
from shared.log.tables import metadata, partition_of_events


def include_object(_object: object, name: str | None, type_: str, _reflected: bool, _compare_to: object) -> bool:
    """Leaves the partitions of `events`, and their indexes, out of the comparison."""
    return not (
        type_ in {"table", "index"} and name is not None and partition_of_events(name) and name != "events_key_seq"
    )


def run(connection: Connection) -> None:
    """Runs the migrations on an open connection, in one transaction."""
    context.configure(connection=connection, target_metadata=metadata, include_object=include_object, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


async def connect_and_run() -> None:
    """Opens a connection of our own, as the `alembic` command does."""
    engine = engine_of(os.environ["KOORD_POSTGRES"])
    async with engine.connect() as connection:
        await connection.run_sync(run)
        await connection.commit()
    await engine.dispose()


handed_in = context.config.attributes.get("connection")
if handed_in is not None:
    run(handed_in)
else:
    asyncio.run(connect_and_run())
