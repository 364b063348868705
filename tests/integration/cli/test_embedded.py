"""The embedded servers have the functions that fault tests use."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import nats
import psutil
import pytest

from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.service_list import contexts


async def request(postgres: EmbeddedPostgres, question: str) -> object:
    connection = await asyncpg.connect(postgres.url, timeout=5)
    try:
        return await connection.fetchval(question, timeout=5)
    finally:
        connection.terminate()


async def test_postgres_keeps_committed_rows_over_a_kill_and_loses_them_when_restored(tmp_path: Path) -> None:
    async with EmbeddedPostgres(tmp_path / "pg") as postgres:
        assert str(await request(postgres, "SHOW server_version")).startswith("18")
        assert await request(postgres, "SHOW client_connection_check_interval") == "1s"
        await postgres.stop()
        await postgres.save_data(tmp_path / "earlier")
        await postgres.start()
        await request(postgres, "CREATE TABLE kept AS SELECT 7 AS n")
        port = postgres.port
        await postgres.restart()
        assert postgres.port == port
        assert await request(postgres, "SELECT n FROM kept") == 7
        await postgres.stop()
        await postgres.put_back_data(tmp_path / "earlier")
        await postgres.start()
        assert await request(postgres, "SELECT to_regclass('kept')") is None


async def test_a_suspended_postgres_responds_to_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    async with EmbeddedPostgres(tmp_path) as postgres:
        connection = await asyncpg.connect(postgres.url)
        await postgres.suspend()
        waiting = asyncio.ensure_future(connection.fetchval("SELECT 1"))
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not done
        await postgres.resume()
        assert await waiting == 1
        await connection.close()


async def test_no_process_of_postgres_is_left_after_a_kill(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path)
    await postgres.start()
    assert postgres.pid
    family = [psutil.Process(postgres.pid), *psutil.Process(postgres.pid).children()]
    assert len(family) > 3
    await postgres.kill()
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)


async def test_nats_comes_back_on_its_port_after_a_kill(tmp_path: Path) -> None:
    async with EmbeddedNats(tmp_path) as server:
        for _ in range(2):
            client = await nats.connect(server.url)
            assert client.max_payload == 1 << 20
            await client.close()
            await server.restart()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_servers_end_with_the_process_that_started_them(tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "import asyncio, pathlib, sys, time\n"
        "from cli.embedded import EmbeddedNats, EmbeddedPostgres\n"
        "async def main():\n"
        "    folder = pathlib.Path(sys.argv[1])\n"
        "    nats, postgres = EmbeddedNats(folder / 'nats'), EmbeddedPostgres(folder / 'postgres')\n"
        "    await nats.start(); await postgres.start()\n"
        "    print(nats.process.pid, postgres.pid, flush=True)\n"
        "    time.sleep(100)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE)
    assert parent.stdout
    line = await asyncio.to_thread(parent.stdout.readline)
    servers = [psutil.Process(int(pid)) for pid in line.split()]
    children = [child for server in servers for child in server.children()]
    parent.send_signal(number)
    parent.wait()
    parent.stdout.close()
    for process in [*servers, *children]:
        with contextlib.suppress(psutil.NoSuchProcess):
            await asyncio.to_thread(process.wait, 10)


async def test_each_test_gets_a_migrated_database_of_its_own(database: str) -> None:
    connection = await asyncpg.connect(database)
    assert await connection.fetchval("SELECT count(*) FROM contexts") == len(contexts())
    await connection.close()


async def test_an_interrupted_creation_is_repeated(tmp_path: Path) -> None:
    half = tmp_path / "data.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    async with EmbeddedPostgres(tmp_path) as postgres:
        assert await request(postgres, "SELECT 1") == 1
