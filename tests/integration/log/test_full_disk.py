"""The log's disk is watched, and when it is full, reports are dropped with the space that was reserved for that."""

import asyncio
import logging
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import aiohttp
import asyncpg
import pytest

from cli.embedded import EmbeddedPostgres
from cli.processes.free_ports import free_port
from cli.service_list import contexts
from services.metrics_ingest.agent_reports.service import SERVICE as METRICS
from services.scheduler.service import SERVICE as SCHEDULER
from shared.events.log import CarriedForward
from shared.events.metrics import ClassReported, NodeReported, PodReported
from shared.log.database import Database
from shared.log.disk_space import free_share_at
from shared.log.migration import migrate
from shared.runtime import health
from shared.runtime.retention import watch_disk
from shared.runtime.service import Environment, Runtime
from shared.runtime.status import Status
from tests.support.retention import Retaining, grow_old, narrow, partitions

ROWS = 50
HOUR_NS = 3600 * 10**9
RESERVED = 60 * 2**20
SILENT_NODES = 40


@pytest.fixture
async def on_small_disk(tmp_path: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A Postgres in a folder of a disk of 300 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300m,mode=755", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    tmp_path.chmod(0o755)
    postgres = EmbeddedPostgres(disk / "postgres", settings={"max_wal_size": "48MB", "min_wal_size": "32MB"})
    try:
        await postgres.start()
        yield postgres
    finally:
        await postgres.kill()
        for _ in range(50):
            if subprocess.run(["umount", str(disk)], check=False, capture_output=True).returncode == 0:
                break
            await asyncio.sleep(0.1)


def report(node: str, at_ns: int) -> NodeReported:
    """A report of some 4 kB."""
    pods = tuple(PodReported(f"namespace/pod-{number:040}", 1_000 + number, 10**9) for number in range(60))
    return NodeReported(
        node=node, at_ns=at_ns, interval_s=60, aggregate_s=300, pods=(ClassReported("koord-prod", "LS", pods),)
    )


def free_bytes(disk: Path) -> int:
    found = subprocess.run(["stat", "-f", "-c", "%a %S", str(disk)], check=True, capture_output=True, text=True)
    blocks, size = found.stdout.split()
    return int(blocks) * int(size)


async def test_a_full_disk_is_freed_with_the_space_that_was_reserved(on_small_disk: EmbeddedPostgres) -> None:
    postgres, small_disk = on_small_disk, on_small_disk.directory.parent
    await migrate(owner := Database(postgres.url), contexts())
    await narrow(owner, "metrics-0", ROWS)
    long_ago = time.time_ns() - 5 * HOUR_NS
    ingest = await Retaining(postgres.url, METRICS, METRICS.retention).start(long_ago)
    ingest.environment = Environment(postgres=postgres.url, disk_path=str(small_disk))
    runtime = cast("Runtime", ingest)

    before = free_bytes(small_disk)
    await watch_disk(runtime)
    await watch_disk(runtime)
    assert before - free_bytes(small_disk) > RESERVED, "reserved, once"

    await ingest.append(*[report(f"silent-{n}", long_ago) for n in range(SILENT_NODES)], now_ns=long_ago)
    for at in range(3):
        await ingest.append(*[report("n", long_ago + at)] * ROWS, now_ns=long_ago)
    await ingest.append(report("n", time.time_ns()), now_ns=time.time_ns())
    await grow_old(owner, "metrics-0", days=1)
    assert await ingest.retain() == 0, "younger than six hours"

    filler = await asyncio.create_subprocess_exec(
        "dd", "if=/dev/zero", f"of={small_disk / 'filler'}", "bs=4k", stderr=asyncio.subprocess.DEVNULL
    )
    assert await filler.wait(), "the disk is full"
    assert free_bytes(small_disk) == 0
    refused = await asyncpg.connect(postgres.url)
    with pytest.raises(asyncpg.DiskFullError):
        await refused.execute("create table more as select repeat('-', 1000) from generate_series(1, 1000)")
    await refused.close()

    await watch_disk(runtime)
    assert ingest.disk_free == 0
    assert await ingest.retain() == 3
    assert "events_metrics_0_p0" not in await partitions(owner, "metrics-0")
    assert len(await ingest.rows(CarriedForward)) == SILENT_NODES + 1, (
        "the last reports of silent nodes, and the writer"
    )
    assert free_bytes(small_disk) > RESERVED - 10 * 2**20
    assert (await ingest.folded_anew()).encode() == ingest.state.encode()

    (small_disk / "filler").unlink()
    free = free_bytes(small_disk)
    await watch_disk(runtime)
    assert free - free_bytes(small_disk) > RESERVED, "reserved again"
    await ingest.close()
    await owner.close()


async def test_writers_whose_events_do_not_yield_reserve_nothing(database: str, tmp_path: Path) -> None:
    one = Retaining(database, SCHEDULER)
    one.environment = Environment(postgres=database, disk_path=str(tmp_path))
    await watch_disk(cast("Runtime", one))
    async with one.database.reading() as connection:
        assert await connection.fetchval("select pg_relation_size('reserved_space')") == 0
    assert one.disk_free == pytest.approx(await free_share_at(str(tmp_path)), abs=0.05)
    await one.close()


async def test_a_disk_that_is_nearly_full_is_warned_of_and_shown(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = Retaining(database, METRICS, METRICS.retention)
    async with one.database.reading() as connection:
        size = await connection.fetchval("select pg_database_size(current_database())")
    one.environment = Environment(postgres=database, disk_gb=size / 0.85 / 10**9)
    with caplog.at_level(logging.WARNING):
        await watch_disk(cast("Runtime", one))
    [warning] = [record for record in caplog.records if "nearly full" in record.getMessage()]
    assert vars(warning)["free_percent"] == 15
    await one.close()

    status = Status(
        service="metrics-ingest", state="leading", epoch=1, lag=0, events_per_s=0, folded=0, positions={}, bus=True,
        disk_free=one.disk_free,
    )  # fmt: skip
    address = f"127.0.0.1:{free_port()}"
    pages = await health.serve(address, lambda: status, health.Metrics())
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/readyz") as ready:
            assert (ready.status, await ready.text()) == (200, "leading\ndisk of the log: 15% free\n")
        async with session.get(f"http://{address}/metrics") as metrics:
            assert "koord_log_disk_free_ratio 0.15" in await metrics.text()
    await pages.cleanup()


async def test_a_folder_that_is_not_there_is_warned_of_and_retention_goes_on(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = Retaining(database, METRICS, METRICS.retention)
    one.environment = Environment(postgres=database, disk_path=str(tmp_path / "nowhere"))
    with caplog.at_level(logging.WARNING):
        await watch_disk(cast("Runtime", one))
    assert [record.getMessage() for record in caplog.records] == ["cannot watch the disk of the log"]
    assert one.disk_free is None
    await one.close()
