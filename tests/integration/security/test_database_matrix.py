"""Every role tries every table, function and statement of the database: those that its service's manifest requires are
permitted, and no others.

The expected rights are derived here from the meaning of the manifests, and not with the code that creates the grants.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest
import pytest_asyncio

from tests.integration.security.conftest import Secured, members
from tests.integration.security.expected_permissions import CONTEXTS

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVICES = tuple(one.name for one in members())
ROLES = (*SERVICES, "operator", "auditor")
BESIDE = ("snapshots", "parked", "skips", "followers")
ALL_READERS = {"operator", "auditor"}

ADVISORY = tuple(
    f"{name}({arguments})"
    for name in (
        "pg_advisory_lock", "pg_advisory_lock_shared", "pg_try_advisory_lock", "pg_try_advisory_lock_shared",
        "pg_advisory_xact_lock", "pg_advisory_xact_lock_shared", "pg_try_advisory_xact_lock", "pg_try_advisory_xact_lock_shared",
    )
    for arguments in ("1", "1, 2")
)  # fmt: skip

NEVER = (
    *(f"select {call}" for call in ADVISORY),
    "select koord_declare_context('evil', 10)",
    "create table mine (a int)", "create temp table mine (a int)", "create schema mine", "create view mine as select 1",
    "create function mine() returns int language sql as 'select 1'", "create extension dblink", "create role mine",
    "create database mine", "create publication mine for all tables", "create sequence mine", "create type mine as (a int)",
    "drop table snapshots", "drop function koord_writer(text)", "alter table events add column mine int",
    "alter table snapshots disable row level security", "alter table events_cluster detach partition events_cluster_p0",
    "drop policy own on snapshots", "alter system set fsync = off", "set role koord", "set role koord_operator_of_nothing",
    "set session authorization koord", "set session_replication_role = replica", "alter role koord password 'x'",
    "reassign owned by koord to koord_scheduler", "comment on table events is 'mine'",
    "copy (select 1) to program 'true'", "copy contexts from '/etc/hostname'", "select pg_read_file('/etc/hostname')",
    "select pg_ls_dir('.')", "select lo_import('/etc/hostname')", "select lo_create(0)", "select lo_from_bytea(0, 'x')",
    "select pg_reload_conf()", "select pg_rotate_logfile()", "select pg_switch_wal()", "select pg_stat_reset()",
    "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'koord' limit 1",
    "select rolpassword from pg_authid", "select * from pg_statistic", "do language plpython3u ''",
    "lock table events in access exclusive mode", "lock table events_cluster in access exclusive mode",
    "lock table contexts in row exclusive mode", "truncate events", "truncate contexts", "truncate snapshots",
    "insert into contexts values ('evil', 1)", "update contexts set partition_rows = 1", "delete from contexts",
    "insert into events select * from events", "update events set key = key", "delete from events",
    "update alembic_version set version_num = '9'", "vacuum full events_cluster", "refresh materialized view mine",
)  # fmt: skip
"""Statements that no role of ours may run."""


class Roles(NamedTuple):
    """The database, with rows of every service in the tables next to the logs, and one event in each log."""

    secured: Secured

    @asynccontextmanager
    async def as_role(self, login: str, database: str = "") -> AsyncIterator[asyncpg.Connection]:
        """Opens a connection of a role."""
        url = self.secured.owner if login == "owner" else self.secured.env(login)["KOORD_POSTGRES"]
        connection = await asyncpg.connect(url.rpartition("/")[0] + f"/{database}" if database else url)
        try:
            yield connection
        finally:
            await connection.close()

    async def may(self, login: str, *statements: str) -> list[bool | str]:
        """Reports for each statement whether it is permitted, in a transaction that is rolled back; for an error other
        than a denial, the result is its text.
        """
        async with self.as_role(login) as connection:
            return [await _permitted(connection, statement) for statement in statements]

    async def seen(self, login: str, query: str) -> set[str]:
        """Returns the first column."""
        async with self.as_role(login) as connection:
            return {row[0] for row in await connection.fetch(query)}


async def _permitted(connection: asyncpg.Connection, statement: str) -> bool | str:
    transaction = connection.transaction()
    await transaction.start()
    try:
        status = await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError:
        return False
    except asyncpg.PostgresError as error:
        return f"{type(error).__name__}: {error}"
    else:
        return not status.endswith(" 0")  # rows that it may not see are absent from the result
    finally:
        await transaction.rollback()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def roles(secured: Secured) -> Roles:
    made = Roles(secured)
    async with made.as_role("owner") as owner:
        for context in CONTEXTS:
            await owner.execute(f"insert into events_{context.replace('-', '_')} {_event(context, 1)}")
        for service in (*SERVICES, "other"):
            await owner.execute(
                f"insert into snapshots (service, positions, schema, code, data, digest) {_snapshot(service)}"
            )
            await owner.execute(f"insert into parked values ('{service}', 'cluster', 1, 'x')")
            await owner.execute(f"insert into skips values ('{service}', 'cluster', 1, 'x', 'y')")
            await owner.execute(f"insert into followers values ('{service}', '{{}}', '{{}}')")
    return made


def _event(context: str, seq: int) -> str:
    return f"values ('{context}', {seq}, 't', 1, 'k', now(), 'a', null, null, '', '')"


def _snapshot(service: str) -> str:
    return f"values ('{service}', '{{}}', 1, '0', '', '')"


def writes(login: str) -> str:
    return next((one.writes for one in members() if one.name == login), "")


def reads(login: str) -> set[str]:
    if login in ALL_READERS:
        return set(CONTEXTS)
    return next(set(one.follows) for one in members() if one.name == login)


def statements_on(context: str) -> Iterator[tuple[str, str]]:
    """Returns kind of right -> statement, for one log."""
    table = f"events_{context.replace('-', '_')}"
    yield "read", f"select * from {table}"
    yield "read", f"select digest from {table} where seq = 1"
    yield "append", f"insert into {table} {_event(context, 2)}"
    yield "never", f"update {table} set key = 'forged'"
    yield "never", f"delete from {table}"
    yield "never", f"truncate {table}"
    yield "never", f"insert into {table}_p0 {_event(context, 3)}"
    yield "never", f"select * from {table}_p0"
    yield "never", f"drop table {table}_p0"
    yield "never", f"alter table {table} detach partition {table}_p0"
    yield "never", f"lock table {table} in share mode"
    yield "append", f"select koord_writer('{context}')"
    yield "append", f"select koord_extend('{context}', 0)"
    yield "append", f"select koord_end_silent_writer('{context}', interval '1 hour')"


@pytest.mark.parametrize("login", ROLES)
async def test_a_role_reads_the_logs_it_follows_and_appends_to_its_own_alone(roles: Roles, login: str) -> None:
    tried = [(context, kind, text) for context in CONTEXTS for kind, text in statements_on(context)]
    found = await roles.may(login, *(text for _, _, text in tried))
    expected = [
        context in reads(login) if kind == "read" else context == writes(login) if kind == "append" else False
        for context, kind, _ in tried
    ]
    differ = [
        (text, is_, should) for (_, _, text), is_, should in zip(tried, found, expected, strict=True) if is_ != should
    ]
    assert not differ


@pytest.mark.parametrize("login", ROLES)
async def test_only_a_role_that_reads_all_logs_may_read_them_together(roles: Roles, login: str) -> None:
    (found,) = await roles.may(login, "select * from events")
    assert found == (login in ALL_READERS)


@pytest.mark.parametrize("login", ROLES)
async def test_no_role_creates_or_removes_objects_locks_tables_or_reaches_the_host(roles: Roles, login: str) -> None:
    found = dict(zip(NEVER, await roles.may(login, *NEVER), strict=True))
    harmless = {
        "create extension dblink": "FeatureNotSupportedError",  # not installed there, which is checked before the right
        "set role koord_operator_of_nothing": "InvalidParameterValueError",
        "do language plpython3u ''": "UndefinedObjectError",
        "refresh materialized view mine": "UndefinedTableError",
        "alter system set fsync = off": "ActiveSQLTransactionError",
        "create database mine": "ActiveSQLTransactionError",
        "vacuum full events_cluster": "ActiveSQLTransactionError",
    }
    allowed = {
        statement: is_
        for statement, is_ in found.items()
        if is_ is not False and not (isinstance(is_, str) and is_.startswith(harmless.get(statement, "never")))
    }
    assert not allowed
    async with roles.as_role(login) as connection:  # those that a transaction would reject first
        for statement in ("alter system set fsync = off", "create database mine"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
        with pytest.raises(asyncpg.PostgresError):
            await connection.copy_to_table("events", source=Path("/dev/null"))


@pytest.mark.parametrize("login", ROLES)
async def test_a_role_sees_and_changes_only_its_own_rows_next_to_the_logs(roles: Roles, login: str) -> None:
    everyone = {*SERVICES, "other"}
    own = {login} & everyone
    visible = {table: await _visible(roles, login, table) for table in BESIDE}
    if login == "auditor":
        assert visible == dict.fromkeys(BESIDE)
    else:
        assert visible == {
            "snapshots": everyone if login == "operator" else own,
            "parked": everyone if login == "operator" else own,
            "skips": everyone if login == "operator" else own,
            "followers": everyone,  # a writer checks the versions that its followers can read
        }
    for service in (*SERVICES, "other"):
        mine, operates = service == login, login == "operator"
        fresh = {
            "snapshots": f"insert into snapshots (service, positions, schema, code, data, digest) {_snapshot(service)}",
            "parked": f"insert into parked values ('{service}', 'cluster', 2, 'x')",
            "skips": f"insert into skips values ('{service}', 'cluster', 2, 'x', 'y')",
            "followers": f"insert into followers values ('{service}', '{{}}', '{{}}') on conflict (service) "
            "do update set seen_at = now()",
        }
        expected = {
            fresh["snapshots"]: mine,
            fresh["parked"]: mine,
            fresh["skips"]: operates,
            fresh["followers"]: mine,
            f"delete from snapshots where service = '{service}'": mine or operates,
            f"delete from parked where service = '{service}'": operates,
            f"delete from skips where service = '{service}'": False,
            f"delete from followers where service = '{service}'": mine or operates,
            f"update followers set reads = '[]' where service = '{service}'": mine,
            f"update snapshots set data = '' where service = '{service}'": False,
            f"update skips set reason = '' where service = '{service}'": False,
            f"update parked set error = '' where service = '{service}'": False,
        }
        found = dict(zip(expected, await roles.may(login, *expected), strict=True))
        assert found == expected


async def _visible(roles: Roles, login: str, table: str) -> set[str] | None:
    try:
        return await roles.seen(login, f"select service from {table}")
    except asyncpg.InsufficientPrivilegeError:
        return None


@pytest.mark.parametrize("login", ROLES)
async def test_no_role_grants_its_rights_to_others(roles: Roles, login: str) -> None:
    async with roles.as_role(login) as connection:
        for table in ("events", "events_cluster", "events_scheduling", "snapshots", "contexts"):
            with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f"grant select on {table} to public")  # a warning, where it may select itself
            assert not await connection.fetchval(
                "select bool_or(acl.grantee = 0) from pg_class c, aclexplode(c.relacl) acl where c.relname = $1", table
            )


async def test_the_scheduler_has_these_rights(roles: Roles) -> None:
    """Checks one row of the matrix in full: an error in the derivation of the expectations would show here."""
    found = await roles.may(
        "scheduler",
        f"insert into events_scheduling {_event('scheduling', 2)}", f"insert into events_cluster {_event('cluster', 2)}",
        "select * from events_cluster", "select * from events_metrics_0", "select koord_writer('scheduling')",
        "select koord_writer('cluster')", "select * from checkpoints", "select * from alembic_version",
    )  # fmt: skip
    assert found == [True, False, True, "metrics-0" in reads("scheduler"), True, False, False, False]


@pytest.mark.parametrize("login", ROLES)
async def test_a_row_of_another_context_in_the_own_table_is_rejected(roles: Roles, login: str) -> None:
    if not (context := writes(login)):
        return
    table = f"events_{context.replace('-', '_')}"
    other = "scheduling" if context != "scheduling" else "cluster"
    (found,) = await roles.may(login, f"insert into {table} {_event(other, 2)}")
    assert isinstance(found, str)
    assert "partition constraint" in found


@pytest.mark.parametrize("login", ROLES)
async def test_checkpoints_are_written_by_the_audit_service_and_read_by_auditors(roles: Roles, login: str) -> None:
    row = "insert into checkpoints values (1, now(), '{}', '', '', '')"
    found = await roles.may(login, "select count(*) from checkpoints", row, "update checkpoints set seq = 2")
    assert found == [login in {"audit", *ALL_READERS}, login == "audit", False]


@pytest.mark.parametrize("login", SERVICES)
async def test_a_partition_is_dropped_only_by_its_writer_and_never_while_it_is_written(
    roles: Roles, login: str
) -> None:
    own = writes(login)
    for context in CONTEXTS:
        table = f"events_{context.replace('-', '_')}"
        calls = [
            f"select koord_drop_partition('{context}', '{name}')"
            for name in (f"{table}_p0", f"{table}_p99", "snapshots", table)
        ]
        found = await roles.may(login, *calls)
        if context != own:
            assert found == [False] * 4
        else:
            no_partition = "UndefinedTableError: {} is no partition of the log {}"
            assert found == [
                f"InvalidParameterValueError: {table}_p0 is not the oldest partition of {context}, or is too young to be dropped",
                *(no_partition.format(name, context) for name in (f"{table}_p99", "snapshots", table)),
            ]


@pytest.mark.parametrize("login", ROLES)
async def test_other_databases_of_the_server_are_closed(roles: Roles, login: str) -> None:
    for database in ("postgres", "template1"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with roles.as_role(login, database):
                pass


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("koord", ""),
        ("koord", "koord"),
        ("koord_scheduler", ""),
        ("koord_scheduler", "x"),
        ("nobody", "x"),
        ("postgres", ""),
    ],
)
async def test_a_missing_and_a_wrong_password_are_rejected(roles: Roles, user: str, password: str) -> None:
    place = roles.secured.owner.rpartition("@")[2]
    with pytest.raises(
        (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidPasswordError, asyncpg.InterfaceError)
    ):
        await asyncpg.connect(f"postgresql://{user}:{password}@{place}")


async def test_the_session_and_the_lock_of_another_role_are_out_of_reach(roles: Roles) -> None:
    async with roles.as_role("scheduler") as holder:
        await holder.execute("select koord_writer('scheduling')")
        pid = holder.get_server_pid()
        for login in ROLES:
            if login == "scheduler":
                continue
            async with roles.as_role(login) as stranger:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await stranger.execute("select pg_terminate_backend($1)", pid)
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await stranger.execute("select pg_cancel_backend($1)", pid)
        assert await holder.fetchval("select 1") == 1
        waiting = await asyncpg.connect(roles.secured.env("scheduler")["KOORD_POSTGRES"])
        with pytest.raises(TimeoutError):
            await waiting.execute("select koord_writer('scheduling')", timeout=0.5)
        with contextlib.suppress(asyncpg.PostgresError, TimeoutError):
            await asyncio.wait_for(waiting.close(), 5)
