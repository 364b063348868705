"""The write-ahead log of Postgres on a disk of its own that is full: it is named, nothing is lost, and work goes on."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

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
from shared.runtime.status import Status
from tests.support.retention import Retaining
from tests.support.small_disk import fill, small_wal_disk
from tests.support.waiting import until


@pytest.fixture
async def with_small_wal_disk(tmp_path: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A Postgres whose write-ahead log lies on a small disk of its own."""
    tmp_path.chmod(0o755)
    postgres = EmbeddedPostgres(tmp_path / "postgres")
    await postgres.start()
    await postgres.stop()
    with small_wal_disk(postgres):
        try:
            await postgres.start()
            yield postgres
        finally:
            await postgres.kill()


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

    filler = await fill(postgres.url, wal)
    await until(lambda: not postgres.running, "the end of Postgres")
    with pytest.raises(KoordError):
        await writer.append(WriterStarted(epoch=9, release="1"), now_ns=0)
    await writer.close()
    writer.environment = Environment(postgres=postgres.url, wal_disk_path=str(wal))
    with caplog.at_level(logging.WARNING):
        await watch_disk(cast("Runtime", writer))
    assert "the disk of the write-ahead log is nearly full" in [record.getMessage() for record in caplog.records]
    status = Status(
        service="scheduler", state="waiting", epoch=1, lag=0, events_per_s=0, folded=0, positions={}, bus=True,
        wal_disk_free=writer.wal_disk_free,
    )  # fmt: skip
    assert health.ready_text(status) == "waiting\ndisk of the write-ahead log: 0% free"
    found = [one for one in await about_disks(system) if "write-ahead" in one.what]
    assert [(one.severity, one.area, str(wal) in one.what) for one in found] == [("error", "disk", True)]

    filler.unlink()
    await postgres.start()
    again = await Retaining(postgres.url, SCHEDULER).start(0)
    seqs = [row.seq for row in await again.rows(WriterStarted)]
    assert seqs[: len(before)] == before
    assert len(seqs) > len(before)
    await again.close()
