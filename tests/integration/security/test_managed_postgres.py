"""An owner that is no superuser, as on a managed Postgres: migrations, roles and grants work, and so does each role."""

from pathlib import Path

import asyncpg
import pytest
from asyncpg import PostgresError
from click.testing import CliRunner

from cli.credentials import secrets_file as books
from cli.credentials.postgres_roles import roles
from cli.credentials.tls_files import logins_of
from cli.embedded import EmbeddedPostgres
from cli.main import koord
from cli.supervisor.system_servers import migrate_to_this_release
from shared.bus.login import url_of
from shared.log.admin.run_sql import run_script
from shared.log.admin.session import opened
from shared.log.database import Database
from shared.log.partition_retention import Partition, drop
from shared.log.writer import LogWriter, LostHead


@pytest.mark.filterwarnings("ignore:.*no privileges could be revoked.*")
async def test_only_advisory_locks_stay_open_without_a_superuser(tmp_path: Path) -> None:
    made = CliRunner().invoke(koord, ["credentials", "init", str(tmp_path / "c")])
    assert made.exit_code == 0, made.output
    book = books.read(tmp_path / "c")
    async with EmbeddedPostgres(tmp_path / "postgres") as server:
        admin = await asyncpg.connect(server.url)
        await admin.execute("create role owning login createrole password 'o'")
        await admin.execute("create database log owner owning")
        await admin.close()
        place = server.place_of("log")
        owner = url_of(f"postgresql://{place}", "owning", "o")
        async with opened(owner) as database:
            await run_script(database, roles(logins_of(book), book.secrets))
        await migrate_to_this_release(owner)
        await migrate_to_this_release(owner)
        async with opened(
            url_of(f"postgresql://{place}", "koord_scheduler", book.secrets["scheduler"].password)
        ) as one:
            first, second = (LogWriter(one, None, "scheduling", f"scheduler@{n}") for n in (1, 2))
            await first.acquire()
            await first.begin("0", (), now_ns=1_800_000_000_000_000_000, seen={})
            for slo_informer in first._keepers:
                slo_informer.cancel()  # sends nothing from now on, as on a machine that hangs
            await second.acquire()  # which ends it, although no role here may see or end another role's session
            assert second.head.seq == first.head.seq
            with pytest.raises(PostgresError, match=r"is no partition|being written"):
                await drop(one, "scheduling", Partition("events_scheduling_p9", 0, 1))
            await first.close()
            await second.close()
        stranger = Database(url_of(f"postgresql://{place}", "koord_gateway", book.secrets["gateway"].password))
        writer = LogWriter(stranger, None, "scheduling", "gateway@1")
        with pytest.raises(LostHead, match="may not write the log scheduling"):
            await writer.acquire()
        await writer.close()
        await stranger.close()
