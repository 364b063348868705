"""Answers from a snapshot and from a position in the log are those of a fold and of a scan of all of it."""

import asyncio
from datetime import timedelta

from click.testing import CliRunner

from cli.bench.answers import commands, find_facts
from cli.bench.answers_history import make_log
from cli.main import koord
from cli.quota.rebuild_state import fold_log
from cli.quota.recorded_accounts import accounts_in, verified, weigh_their_max
from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.decide.admission import AdmissionRules
from services.quota_ledger.explain.explain_runtime import explain
from services.quota_ledger.explain.quota_overview import overview
from services.quota_ledger.explain.quota_shortfall_of_pod import explain_pod
from services.quota_ledger.state.ledger_state import LedgerState
from shared.log.admin.session import reading
from shared.log.database import Database
from shared.log.service_store import ServiceStore


def answers(projection: LedgerProjection) -> object:
    """Returns what `quota tree`, `explain` and `why` print for every quota and some pods."""
    pods = sorted(projection.pods)
    return (
        overview(projection),
        [explain(projection, quota) for quota in sorted(projection.tree_of)],
        [explain_pod(projection, uid, AdmissionRules()) for uid in pods[:: len(pods) // 20 or 1]],
    )


async def test_accounts_from_a_snapshot_are_those_folded_from_the_beginning(database: str) -> None:
    await make_log(database, 8_000, lambda _: None)
    async with reading(database) as log:
        snapshot = await ServiceStore(log.database, "quota-ledger").newest_snapshot(LedgerState.SCHEMA, log)
        assert snapshot is not None
        rows = [row async for row in log.rows(context="quota")]
        of_snapshot = rows[snapshot.positions["quota"].seq - 1]
        # Before the snapshot, at it, after it, at the head.
        for at in (rows[len(rows) // 4].at, of_snapshot.at, rows[-2].at, None):
            read, folded = await accounts_in(log, at), await fold_log(log, at)
            assert not read.is_computed
            assert answers(read.projection) == answers(folded.state.projection)
        head = (await accounts_in(log)).projection
    assert await weigh_their_max(database, head, ["team-3-4", "no-such-quota"], None) == {"team-3-4"}
    report, is_computed = await verified(database)
    assert (report.findings, report.seq, is_computed) == ([], rows[-1].seq, False)
    assert overview(report.projection) == overview(head)


async def test_a_read_from_the_start_of_the_log_after_a_raise_of_the_schema_names_the_reason(database: str) -> None:
    await make_log(database, 8_000, lambda _: None)
    env = {"KOORD_POSTGRES": database}
    before = await asyncio.to_thread(CliRunner().invoke, koord, ["get", "quotas"], env=env)
    assert (before.exit_code, before.stderr) == (0, "")
    async with Database(database).transaction() as connection:
        await connection.execute("update snapshots set schema = schema - 1 where service = 'quota-ledger'")
    after = await asyncio.to_thread(CliRunner().invoke, koord, ["get", "quotas"], env=env)
    assert after.stdout == before.stdout
    earlier, now = LedgerState.SCHEMA - 1, LedgerState.SCHEMA
    expected = f"koord: the snapshots of quota-ledger have schema {earlier}, and this release reads {now}: "
    assert after.stderr.startswith(expected)
    assert "events are read from the start of the log" in after.stderr


async def test_every_command_that_the_benchmark_measures_succeeds_on_its_log(database: str) -> None:
    await make_log(database, 10_000, lambda _: None)
    recent, _, _ = await find_facts(database)
    for name, arguments in commands(recent).items():
        done = await asyncio.to_thread(CliRunner().invoke, koord, arguments, env={"KOORD_POSTGRES": database})
        assert done.exit_code == 0, f"{name}: {done.output}"


async def test_events_since_an_instant_are_those_of_a_scan(database: str) -> None:
    await make_log(database, 8_000, lambda _: None)
    async with reading(database) as log:
        rows = [row async for row in log.rows(context="cluster")]
        for middle in (
            rows[0].at - timedelta(days=1),
            rows[len(rows) // 2].at,
            rows[-1].at,
            rows[-1].at + timedelta(1),
        ):
            found = [row.seq async for row in log.rows(context="cluster", since=middle)]
            assert found == [row.seq for row in rows if row.at >= middle]


async def test_the_last_event_until_an_instant_is_that_of_a_scan(database: str) -> None:
    await make_log(database, 8_000, lambda _: None)
    async with reading(database) as log:
        rows = [row async for row in log.rows(context="slo")]
        middle = rows[len(rows) // 2].at
        for at in (rows[0].at - timedelta(days=1), rows[0].at, middle, rows[-1].at, rows[-1].at + timedelta(days=1)):
            assert await log.last_until("slo", at) == max((row.seq for row in rows if row.at <= at), default=0)
