"""SQL that an owner runs: many statements as written, in one transaction, one runner at a time."""

from typing import NamedTuple

from shared.log.database import Database

_LOCK = "select pg_advisory_xact_lock(hashtextextended('koordstream migrations', 0))"


class Existing(NamedTuple):
    """Input of grants: the roles `koord_...` of the server, the contexts of the database, and its name."""

    roles: list[str]
    contexts: list[str]
    database: str


async def run_script(database: Database, sql: str) -> None:
    """Runs statements in one transaction."""
    async with database.transaction() as connection:
        await connection.execute(_LOCK)
        await connection.execute(sql)


async def existing_roles(database: Database) -> Existing:
    """Returns the existing roles and contexts."""
    async with database.reading() as connection:
        roles = await connection.fetch(r"select rolname from pg_roles where rolname like 'koord\_%' order by 1")
        contexts = await connection.fetch("select context from contexts order by context")
        name = await connection.fetchval("select current_database()")
        return Existing([role for (role,) in roles], [context for (context,) in contexts], str(name))
