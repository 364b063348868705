"""Grants of the release, at each migration: for those roles that exist, what their services' declarations say now."""

from collections.abc import Iterable

from cli.credentials import postgres_roles
from cli.credentials.permissions import Login
from shared.log.admin.run_sql import existing_roles, run_script
from shared.log.database import Database


async def grant(database: Database, logins: Iterable[Login]) -> list[str]:
    """Grants each role its rights in this database; the roles. A database without such roles is its owner's alone.

    Raises:
        KoordError: the caller does not own the tables.
    """
    here = await existing_roles(database)
    known = [login for login in logins if login.log is not None and login.log.role in here.roles]
    if known:
        await run_script(database, postgres_roles.grants(known, here.contexts, here.database))
    return [login.log.role for login in known if login.log is not None]
