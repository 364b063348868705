"""Answers from a snapshot and from a position in the log are those of a fold and of a scan of all of it."""

from datetime import timedelta

from cli.bench.answers_history import make_log
from cli.quota.rebuild_state import fold, newest
from services.quota_ledger.explain.quota_overview import overview
from shared.log.admin.session import reading


async def test_a_state_from_the_newest_snapshot_is_the_one_folded_from_the_beginning(database: str) -> None:
    await make_log(database, 8_000, lambda _: None)
    read, folded = await newest(database), await fold(database)
    assert not read.own, "the ledger's log is not read from its beginning"
    assert not read.is_computed
    assert overview(read.state.projection) == overview(folded.state.projection)


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
