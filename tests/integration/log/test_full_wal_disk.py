"""The write-ahead log of Postgres on a disk of its own that is full: it is named, nothing is lost, and work goes on."""

import asyncio
import logging
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import asyncpg
import pytest

from cli.doctor.all_checks import about_disks
from cli.embedded import EmbeddedPostgres
from cli.service_list import contexts
from cli.supervisor.system_folder import wal_on_another_disk
from services.scheduler.service import SERVICE as SCHEDULER
from shared.errors import KoordError
from shared.events.log import WriterStarted
from shared.log.database import Database
from shared.log.migration import migrate
from shared.runtime import health
from shared.runtime.retention import watch_disk
from shared.runtime.service import Environment, Runtime
from tests.support.retention import Retaining
from tests.support.waiting import until

MIB = 2**20
ROOM = 64 * MIB


@pytest.fixture
async def with_small_wal_disk(tmp_path: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A Postgres whose write-ahead log lies on a small disk of its own."""
    tmp_path.chmod(0o755)
    postgres = EmbeddedPostgres(tmp_path / "postgres")
    await postgres.start()
    await postgres.stop()
    wal = postgres.data / "pg_wal"
    owner, size = wal.stat(), sum(file.stat().st_size for file in wal.rglob("*") if file.is_file())
    shutil.copytree(wal, tmp_path / "kept")
    options = f"size={size + ROOM},uid={owner.st_uid},gid={owner.st_gid},mode=700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(wal)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        shutil.copytree(tmp_path / "kept", wal, dirs_exist_ok=True)
        subprocess.run(["chown", "-R", f"{owner.st_uid}:{owner.st_gid}", str(wal)], check=True)
        await postgres.start()
        yield postgres
    finally:
        await postgres.kill()
        for _ in range(50):
            if subprocess.run(["umount", str(wal)], check=False, capture_output=True).returncode == 0:
                break
            await asyncio.sleep(0.1)


async def fill(url: str, wal: Path) -> None:
    """Takes the room of the disk, and has Postgres write more than it has left."""
    with suppress(OSError), (wal / "junk").open("wb", buffering=0) as junk:
        while junk.write(b"\0" * MIB) == MIB:
            pass
    with suppress(asyncpg.PostgresError, OSError):
        connection = await asyncpg.connect(url)
        await connection.execute("create table filler (content text storage external)")
        # In a transaction of its own: what a new table gets in its own one is not written ahead.
        await connection.execute("insert into filler select repeat(md5(n::text), 99) from generate_series(1, 99999) n")


async def test_a_full_wal_disk_is_named_and_the_log_goes_on_once_there_is_room(
    with_small_wal_disk: EmbeddedPostgres, caplog: pytest.LogCaptureFixture
) -> None:
    postgres = with_small_wal_disk
    wal, system = postgres.data / "pg_wal", postgres.directory.parent
    assert wal_on_another_disk(postgres.directory) == wal
    await migrate(owner := Database(postgres.url), contexts())
    await owner.close()
    writer = await Retaining(postgres.url, SCHEDULER).start(0)
    before = [row.seq for row in await writer.rows(WriterStarted)]

    await fill(postgres.url, wal)
    await until(lambda: not postgres.running, "the end of Postgres")
    with pytest.raises(KoordError):
        await writer.append(WriterStarted(epoch=9, release="1"), now_ns=0)
    await writer.close()
    writer.environment = Environment(postgres=postgres.url, wal_disk_path=str(wal))
    with caplog.at_level(logging.WARNING):
        await watch_disk(cast("Runtime", writer))
    assert "the disk of the write-ahead log is nearly full" in [record.getMessage() for record in caplog.records]
    status = health.Status(
        service="scheduler", state="waiting", epoch=1, lag=0, events_per_s=0, folded=0, positions={}, bus=True,
        wal_disk_free=writer.wal_disk_free,
    )  # fmt: skip
    assert health.ready_text(status) == "waiting\ndisk of the write-ahead log: 0% free"
    found = [one for one in await about_disks(system) if "write-ahead" in one.what]
    assert [(one.severity, one.area, str(wal) in one.what) for one in found] == [("error", "disk", True)]

    (wal / "junk").unlink()
    await postgres.start()
    again = await Retaining(postgres.url, SCHEDULER).start(0)
    seqs = [row.seq for row in await again.rows(WriterStarted)]
    assert seqs[: len(before)] == before
    assert len(seqs) > len(before)
    await again.close()
