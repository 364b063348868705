"""Copier processes that are killed, stopped, cut off and doubled: the surviving one copies every event once."""

import asyncio
import contextlib
import json
import urllib.request

import asyncpg
import pytest

from cli.processes.child_process import Process
from cli.processes.free_ports import free_port
from shared.runtime import failpoints
from tests.support.copier_service import Seen
from tests.support.log_system import Copiers, Load, Writer, assert_each_once, copies, leaders, wait_for_copies
from tests.support.waiting import in_thread, until

HOLDER = """
    select l.pid from pg_locks l where l.locktype = 'advisory' and l.granted and l.objsubid = 1
    and l.database = (select oid from pg_database where datname = current_database())
    and ((l.classid::bigint << 32) | l.objid::bigint) = koord_lock_key('copy')
"""


@pytest.fixture(autouse=True)
def _show_logs_of_a_failed_test(copiers: Copiers, request: pytest.FixtureRequest) -> object:
    yield
    print(copiers.logs())  # shown when the test has failed


async def wait_for_leader(url: str, replica: str) -> None:
    await until(lambda: leaders(url), f"replica {replica} leads", holds=lambda found: found[-1:] == [replica])


async def ended(process: Process) -> int | None:
    async with asyncio.timeout(240):
        await process.ended()
    return process.exit_code


async def test_a_writer_killed_between_commit_and_announcement_loses_and_doubles_nothing(
    url: str, writer: Writer, copiers: Copiers
) -> None:
    first = copiers.start("a", KOORD_FAILPOINT="log.after-commit-before-announce:4")
    await wait_for_leader(url, "a")
    copiers.start("b")
    load = Load(writer)
    assert await ended(first) == failpoints.CODE
    held = await copies(url)
    assert held[-1].actor == "copier@a", "the last commit was never announced"
    await wait_for_leader(url, "b")
    await asyncio.sleep(1)
    seqs = await load.stop()
    await wait_for_copies(url, seqs)
    assert_each_once(await copies(url), seqs)
    assert await leaders(url) == ["a", "b"]


async def test_a_writer_killed_before_its_commit_loses_and_doubles_nothing(
    url: str, writer: Writer, copiers: Copiers
) -> None:
    seqs = await writer.see(100, size=10)
    first = copiers.start("a", KOORD_FAILPOINT="log.before-commit:3")
    assert await ended(first) == failpoints.CODE
    copiers.start("b")
    await wait_for_copies(url, seqs)
    assert_each_once(await copies(url), seqs)


async def test_a_stopped_writer_is_replaced_within_seconds_and_writes_nothing_when_it_wakes(
    url: str, writer: Writer, copiers: Copiers
) -> None:
    first = copiers.start("a")
    await wait_for_leader(url, "a")
    copiers.start("b")
    load = Load(writer)
    await wait_for_copies(url, [0] * 30)
    first.pause()
    await wait_for_leader(
        url, "b"
    )  # the stopped writer keeps its connection: the standby leads only after the end of that session
    first.resume()
    assert await ended(first) == 1, "it ends itself"
    seqs = await load.stop()
    await wait_for_copies(url, seqs)
    found = await copies(url)
    assert_each_once(found, seqs)
    taken_over = max(row.seq for row in found if "WriterStarted" in row.type)
    assert {row.actor for row in found if row.seq >= taken_over} == {"copier@b"}


async def test_a_writer_whose_lock_connection_alone_is_cut_ends_and_its_standby_continues(
    url: str, writer: Writer, copiers: Copiers
) -> None:
    first = copiers.start("a")
    await wait_for_leader(url, "a")
    copiers.start("b")
    load = Load(writer)
    await wait_for_copies(url, [0] * 30)
    admin = await asyncpg.connect(url)
    assert await admin.fetchval(f"select count(pg_terminate_backend(pid)) from ({HOLDER}) holder") == 1
    await admin.close()
    assert await ended(first) == 1
    await wait_for_leader(url, "b")
    seqs = await load.stop()
    await wait_for_copies(url, seqs)
    assert_each_once(await copies(url), seqs)


async def test_of_two_writers_at_once_exactly_one_continues(url: str, writer: Writer, copiers: Copiers) -> None:
    load = Load(writer)
    copiers.start("a")
    copiers.start("b")

    async def one_leads() -> bool:
        return len(await leaders(url)) > 0

    await until(one_leads)
    await wait_for_copies(url, [0] * 100)
    assert len(await leaders(url)) == 1
    (leader,) = await leaders(url)
    copiers.processes[leader].kill()
    await wait_for_leader(url, "b" if leader == "a" else "a")
    seqs = await load.stop()
    await wait_for_copies(url, seqs)
    assert_each_once(await copies(url), seqs)
    assert len(await leaders(url)) == 2


async def test_a_drained_writer_hands_over_with_a_snapshot(url: str, writer: Writer, copiers: Copiers) -> None:
    first = copiers.start("a")
    await wait_for_leader(url, "a")
    seqs = await writer.see(50, size=5)
    await wait_for_copies(url, seqs)
    first.request_exit()
    assert await ended(first) == 0
    admin = await asyncpg.connect(url)
    assert await admin.fetchval("select positions->'source'->>0 from snapshots where service = 'copier'") == "51"
    assert await admin.fetchval("select positions->>'source' from followers where service = 'copier'") is not None
    await admin.close()
    copiers.start("b")
    seqs += await writer.see(10)
    await wait_for_copies(url, seqs)
    assert_each_once(await copies(url), seqs)


async def test_a_writer_refuses_to_start_while_a_follower_cannot_read_its_types(
    url: str, writer: Writer, copiers: Copiers
) -> None:
    admin = await asyncpg.connect(url)
    reads = json.dumps({"copy": ["koord.copy.Copied.v0"]})
    await admin.execute("insert into followers values ('auditor', '{}', $1)", reads)
    process = copiers.start("a")
    assert await ended(process) == 1
    assert "auditor follows copy and cannot read koord.copy.Copied.v1" in process.tail()
    assert await copies(url) == []
    await admin.execute("update followers set reads = $1", reads.replace("v0", "v1"))
    await admin.close()
    process.start()
    await wait_for_leader(url, "a")


@pytest.mark.timeout(600)
async def test_rebuilds_run_beside_the_service_and_report_a_corrupted_state(
    url: str, writer: Writer, copiers: Copiers
) -> None:
    # A rebuild takes as long as many snapshots, of which three are kept: with those that it and the next one need.
    often = {"KOORD_SNAPSHOT_INTERVAL_S": "0.01", "KOORD_REBUILD_INTERVAL_S": "1"}
    process = copiers.start(
        "a", KOORD_COPIER_FORGET="pod-7", KOORD_HTTP_ADDR=f"127.0.0.1:{(port := free_port())}", **often
    )
    await wait_for_leader(url, "a")
    load = Load(writer, interval_s=0.05)
    await wait_for_rebuild(port, "equal")
    await writer.append(Seen(name="pod-7"))
    found = await wait_for_rebuild(port, "differs at copied/pod-7/0, see copy/")
    assert found.endswith("koord.copy.Copied.v1 pod-7")
    assert '"path":"copied/pod-7/0"' in process.tail(200)
    seqs = await load.stop()
    await wait_for_copies(url, [*seqs, 0])
    assert process.running, "an alarm, never a repair"


async def wait_for_rebuild(port: int, begins: str) -> str:
    def rebuilt() -> str:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/statusz") as answer:
            return str(json.load(answer)["rebuilt"])
        return ""

    # The child that rebuilds runs at a lower priority than everything else on the machine.
    return await until(in_thread(rebuilt), holds=lambda found: found.startswith(begins), within_s=280)
