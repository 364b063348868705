"""Grants of the release, at each migration: for those roles that exist, what their services' declarations say now."""

import re
from collections.abc import Sequence

from cli.credentials import postgres
from cli.credentials.declared import declared_logins
from cli.credentials.rights import Login, role_of
from cli.services import SERVICES
from shared.log.database import Database
from shared.log.script import existing_roles, run_script


async def grant(database: Database, shards: int, declared: Sequence[Login] = ()) -> list[str]:
    """Grant each role its rights in this database; the roles. A database without such roles is its owner's alone.

    Args:
        declared: the logins that the declarations give, where they are known already.

    Raises:
        KoordError: a declaration cannot be read, or the caller does not own the tables.
    """
    here = await existing_roles(database)
    services = [name for name in SERVICES if _has_role(name, here.roles)]
    if not here.roles:
        return []
    known = [
        login
        for login in declared or await declared_logins(services, shards)
        if login.log is not None and login.log.role in here.roles
    ]
    if known:
        await run_script(database, postgres.grants(known, here.contexts, here.database))
    return [login.log.role for login in known if login.log is not None]


def _has_role(service: str, roles: Sequence[str]) -> bool:
    pattern = re.compile(rf"{role_of(service)}(_\d+)?")
    return any(pattern.fullmatch(role) for role in roles)
