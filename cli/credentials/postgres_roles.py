"""Roles of the database and what they are granted: SQL that may be run any number of times.

Roles belong to the server, grants to one database: roles are made once, by who may make roles; grants at each `koord
migrate`, by the owner of the tables, after the contexts of the release are there.
"""

from collections.abc import Iterable, Mapping, Sequence

from cli.credentials.permissions import Login, LogRights
from cli.credentials.secrets_file import Secret
from shared.log.table_names import table_of

HEAD = "-- Made by `koord credentials` from the services' declarations; safe to repeat. Verifiers only: no password can be read from it.\n"

WRITERS = (
    "koord_check_writer(text)",
    "koord_writer(text)",
    "koord_lock_key(text)",
    "koord_extend(text, bigint)",
    "koord_end_silent_writer(text, interval)",
    "koord_drop_partition(text, text)",
    "koord_expired_partition(text, interval, bigint)",
    "koord_reserve_space(text)",
    "koord_release_space(text)",
)
"""Functions that check whether their caller writes the context they are about."""

POLICIES = ("koord_role_of(text)", "koord_operates()")
"""Condition of the row policies."""

BESIDE = {"audit": {"checkpoints": "select, insert, delete"}}
"""Context -> tables that belong to its writer."""

HBA = """\
# Made by `koord credentials`: who comes over the net has a password and TLS; inside the container the owner's tools use
# the socket.
local   all  {owner}               scram-sha-256
hostssl {database}  all  0.0.0.0/0  scram-sha-256
hostssl {database}  all  ::/0       scram-sha-256
host    all  {owner}  127.0.0.1/32  scram-sha-256
"""


def roles(logins: Iterable[Login], secrets: Mapping[str, Secret]) -> str:
    """The roles with their passwords' verifiers."""
    parts = [HEAD]
    for login in logins:
        if login.log is not None:
            role, verifier = login.log.role, secrets[login.name].scram
            parts.append(
                f"do $$ begin if not exists (select from pg_roles where rolname = '{role}') then create role {role}; end if; end $$;\n"
                f"alter role {role} with login noinherit password '{verifier}';\n"
            )
    return "".join(parts)


def grants(logins: Iterable[Login], contexts: Sequence[str], database: str) -> str:
    """All that these roles may do in one database, and nothing that an earlier release granted them."""
    name = '"' + database.replace('"', '""') + '"'
    parts = [f"revoke all on database {name} from public;\n"]
    for login in logins:
        if login.log is not None:
            parts += [f"{statement};\n" for statement in _of_role(login.log, contexts, name)]
    return "".join(parts)


def hba(database: str, owner: str) -> str:
    """Returns pg_hba.conf for a server of one's own: the addresses from which each role may connect."""
    return HBA.format(database=database, owner=owner)


def _of_role(rights: LogRights, contexts: Sequence[str], database: str) -> list[str]:
    role = rights.role
    reads = list(contexts) if rights.reads is None else [one for one in rights.reads if one in contexts]
    statements = [
        f"revoke all on all tables in schema public from {role}",
        f"revoke all on all functions in schema public from {role}",
        f"revoke all on schema public from {role}",
        f"grant connect on database {database} to {role}",
        f"grant usage on schema public to {role}",
        f"grant select on contexts to {role}",
    ]
    if reads:
        statements.append(f"grant select on {', '.join(table_of(one) for one in reads)} to {role}")
    if rights.reads is None:
        statements.append(f"grant select on events, checkpoints to {role}")
    functions: list[str] = []
    if rights.writes in contexts:
        statements.append(f"grant insert on {table_of(rights.writes)} to {role}")
        statements += [f"grant {verbs} on {table} to {role}" for table, verbs in BESIDE.get(rights.writes, {}).items()]
        functions += WRITERS
    if rights.service:
        functions += POLICIES
        statements += [
            f"grant select, insert, delete on snapshots to {role}",
            f"grant select, insert on parked to {role}",
            f"grant select on skips to {role}",
            f"grant select, insert, update, delete on followers to {role}",
        ]
    if rights.operates:
        functions += POLICIES
        statements += [
            f"grant select, delete on snapshots, parked, followers to {role}",
            f"grant select, insert on skips to {role}",
            f"grant select on alembic_version to {role}",
        ]
    if functions:
        statements.append(f"grant execute on function {', '.join(functions)} to {role}")
    return statements
