"""State of a Postgres server and of the log in it, for people: settings, clocks, schema version, sizes of contexts."""

import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from asyncpg import PostgresError

from shared.log.database import MIGRATIONS, SERVER_SETTINGS, Database, sqlstate
from shared.log.table_names import table_of

LOOKED_AT = (
    "client_connection_check_interval",
    "fsync",
    "full_page_writes",
    "lock_timeout",
    "statement_timeout",
    "synchronous_commit",
    "tcp_keepalives_count",
    "tcp_keepalives_idle",
    "tcp_keepalives_interval",
    "tcp_user_timeout",
    "transaction_read_only",
)
"""Settings that decide whether events survive a power cut, and whether a writer that is gone loses its lock."""

UNDEFINED_TABLE = "42P01"

LOOKS_AT_CLOCK = 3
"""The one with the shortest round trip counts: the first pays for the statement."""


class Server(NamedTuple):
    """A Postgres server, as this login sees it.

    Attributes:
        version: as `server_version_num`: 180001 is 18.1.
        settings: those of LOOKED_AT, in this session, as numbers of the setting's own unit or as words.
        ahead_s: how far its clock is ahead of this machine's, up to half of `round_trip_s` either way.
        connections: those to the whole server, and how many there may be.
        encrypted: whether this connection is.
    """

    version: int
    user: str
    superuser: bool
    standby: bool
    settings: dict[str, str]
    ahead_s: float
    round_trip_s: float
    connections: tuple[int, int]
    encrypted: bool


class Schema(NamedTuple):
    """The migrations of a database, and of this release.

    Attributes:
        found: revision of the database; empty when it was never migrated.
        required: newest revision of this release.
        known: this release has the revision `found`: an older or the same one.
    """

    found: str
    required: str
    known: bool


class ContextSize(NamedTuple):
    """Size of one context in the database.

    Attributes:
        head: seq of its last event, 0 when it has none.
        head_at_ns: instant of its append.
        oldest: seq of its first kept event.
        partitions: tables that hold it, those ahead of the head included.
        room: how many more events fit before a partition must be made.
        size_bytes: of all of them, with their indexes.
    """

    context: str
    head: int
    head_at_ns: int
    oldest: int
    partitions: int
    room: int
    size_bytes: int


_SERVER_SQL = """
select current_setting('server_version_num')::integer as version, current_user as login, pg_is_in_recovery() as standby,
       (select rolsuper from pg_roles where rolname = current_user) as superuser,
       (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
       current_setting('max_connections')::integer as most,
       (select ssl from pg_stat_ssl where pid = pg_backend_pid()) as encrypted
"""

_SIZES_SQL = """
select count(*) as partitions, coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint as bytes,
       coalesce(max(substring(pg_get_expr(c.relpartbound, c.oid) from 'TO \\(''?([0-9]+)')::bigint), 0) as upto
from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = to_regclass($1)
"""


_REVISION = re.compile(r'^revision = "(\w+)"', re.MULTILINE)
_FOLLOWED = re.compile(r'^down_revision = "(\w+)"', re.MULTILINE)


async def look(database: Database) -> Server:
    """Reads version, settings, clock and connections of the server."""
    async with database.reading() as connection:
        row = await connection.fetchrow(_SERVER_SQL)
        ahead_s, round_trip_s = min([await _clock(connection) for _ in range(LOOKS_AT_CLOCK)], key=lambda look: look[1])
        rows = await connection.fetch("select name, setting from pg_settings where name = any($1)", list(LOOKED_AT))
        settings = dict(rows)
    return Server(
        version=row["version"],
        user=row["login"],
        superuser=bool(row["superuser"]),
        standby=row["standby"],
        settings=settings,
        ahead_s=ahead_s,
        round_trip_s=round_trip_s,
        connections=(row["connections"], row["most"]),
        encrypted=bool(row["encrypted"]),
    )


async def _clock(connection: Any) -> tuple[float, float]:
    """Returns how far the server's clock is ahead, and the round trip, half of which is uncertainty; seconds."""
    sent = time.time_ns()
    now_us = await connection.fetchval("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
    received = time.time_ns()
    return (now_us * 1000 - (sent + received) // 2) / 1e9, (received - sent) / 1e9


async def schema(database: Database) -> Schema:
    """Compares the migrations of the database with those of this release.

    Raises:
        DatabaseDenied: this login may not read them.
    """
    try:
        async with database.reading() as connection:
            # By its whole name: a login without rights to the schema gets that error, and not that there is no such
            # table.
            found = await connection.fetchval("select version_num from public.alembic_version")
    except PostgresError as error:
        if sqlstate(error) != UNDEFINED_TABLE:
            raise
        found = None
    known, newest = revisions()
    return Schema(found or "", newest, found in known)


def revisions() -> tuple[frozenset[str], str]:
    """Returns the revisions of this release's migrations, and the newest, which no other one follows.

    Read from the files: importing Alembic and the migrations takes longer than all else that a command does.
    """
    texts = [file.read_text() for file in (MIGRATIONS / "versions").glob("*.py")]
    known = {found[1] for text in texts if (found := _REVISION.search(text))}
    followed = {found[1] for text in texts if (found := _FOLLOWED.search(text))}
    return frozenset(known), max(known - followed, default="")


async def declared(database: Database) -> Mapping[str, int]:
    """Returns the contexts that the database has a log for -> events that one of its partitions holds."""
    async with database.reading() as connection:
        return dict(await connection.fetch("select context, partition_rows from contexts order by context"))


async def size_of(database: Database, context: str) -> ContextSize:
    """Returns the size of a context."""
    table = table_of(context)
    async with database.reading() as connection:
        head = await connection.fetchrow(
            f'select seq, (extract(epoch from at) * 1000000)::bigint as at_us from "{table}" '  # noqa: S608
            "where context = $1 order by seq desc limit 1",
            context,
        )
        oldest = await connection.fetchval(
            f'select seq from "{table}" where context = $1 order by seq limit 1',  # noqa: S608
            context,
        )
        row = await connection.fetchrow(_SIZES_SQL, table)
    seq = head["seq"] if head else 0
    return ContextSize(
        context=context,
        head=seq,
        head_at_ns=head["at_us"] * 1000 if head else 0,
        oldest=oldest or 0,
        partitions=row["partitions"],
        room=row["upto"] - 1 - seq,
        size_bytes=row["bytes"],
    )


def refused_settings(server: Server) -> list[str]:
    """Returns the session settings that were requested and are not in force, because a proxy between us and the server
    drops them.
    """
    requested = {"tcp_user_timeout": SERVER_SETTINGS["tcp_user_timeout"]}
    requested |= {name: SERVER_SETTINGS[name] for name in server.settings if name.startswith("tcp_keepalives")}
    requested["client_connection_check_interval"] = SERVER_SETTINGS["client_connection_check_interval"]
    return sorted(name for name, value in requested.items() if server.settings.get(name) != value)
