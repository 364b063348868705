"""NATS and Postgres that stop, restart and are restored to an earlier point, under load: work continues, and nothing is
lost or doubled."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.service_list import contexts
from shared.bus import Bus
from shared.log.database import Database
from shared.log.migration import migrate
from shared.log.writer import LostHead
from shared.runtime.task_cancellation import cancel_and_wait
from tests.support.log_system import (
    Copiers,
    Following,
    Load,
    Writer,
    a_standby_waits,
    assert_each_once,
    copies,
    declare,
    leaders,
    wait_for_copies,
)
from tests.support.waiting import until


async def has_all(one: Following, seqs: list[int]) -> None:
    await until(lambda: list(one.state.seen) == seqs)
    await until(lambda: sum(map(len, one.state.copied.values())) == len(seqs))


@pytest.mark.parametrize("away_s", [8.0, pytest.param(60.0, marks=pytest.mark.soak)])
async def test_work_continues_without_nats_and_announcements_resume(
    url: str, server: EmbeddedNats, writer: Writer, following: Following, copiers: Copiers, away_s: float
) -> None:
    await following.start()
    copiers.start("a")

    async def led() -> bool:
        return await leaders(url) == ["a"]

    await until(led)
    load = Load(writer, interval_s=0.02)
    await wait_for_copies(url, [0] * 30)
    await server.stop()
    ends, repairs = time.monotonic() + away_s, following.follower.repairs + away_s / 4
    while time.monotonic() < ends or following.follower.repairs < repairs:  # by polling
        target = load.seqs[-1]
        await until(lambda target=target: following.follower.positions["source"].seq >= target)  # type: ignore[misc]
        await asyncio.sleep(0.02)
    print(f"{len(await copies(url))} copied without NATS")

    await server.start()
    for one in (writer.log._bus, following.follower._bus):
        assert one is not None
        await until(lambda one=one: one.connected)  # type: ignore[misc]

    async def nothing_is_read() -> bool:
        before = following.follower.repairs
        reached = following.follower.folded + 60
        await until(lambda: following.follower.folded >= reached)
        return following.follower.repairs == before

    await until(nothing_is_read)
    seqs = await load.stop()
    await wait_for_copies(url, seqs)
    assert_each_once(await copies(url), seqs)
    await until(lambda: list(following.state.seen) == seqs)
    assert len(await leaders(url)) == 1, "no writer ended because NATS was away"


@pytest.fixture
async def own_postgres(tmp_path: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A server of the test's own, to be stopped and restored."""
    async with EmbeddedPostgres(tmp_path / "postgres") as postgres:
        database = Database(postgres.url)
        await migrate(database, contexts())
        await database.close()
        await declare(postgres.url)
        yield postgres


async def stop_and_start(postgres: EmbeddedPostgres) -> None:
    await postgres.stop()
    await asyncio.sleep(1)
    await postgres.start()


async def kill_and_start(postgres: EmbeddedPostgres) -> None:
    await postgres.restart()


class Source:
    """A writer of `source` that starts again whenever it has lost its head, as a supervised process does."""

    def __init__(self, url: str, bus: Bus) -> None:
        self.lost = 0
        self._url, self._bus = url, bus
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            writer = Writer(self._url, self._bus)
            try:
                await writer.start()
                while True:
                    await writer.see(3, size=3)
                    await asyncio.sleep(0.01)
            except (LostHead, OSError):
                self.lost += 1
                await asyncio.sleep(0.2)
            finally:
                await writer.close()

    async def stop(self) -> None:
        await cancel_and_wait(self._task)


async def source_seqs(url: str) -> list[int]:
    """Returns the seqs of the Seen events that are in the log, announced or not."""
    database = Database(url)
    following = Following(url, None)
    try:
        return [row.seq async for row in following.reader.rows(context="source", kind="Seen")]
    finally:
        await following.close()
        await database.close()


@pytest.mark.parametrize("restart", [stop_and_start, kill_and_start])
async def test_postgres_restarts_under_load(
    own_postgres: EmbeddedPostgres,
    server: EmbeddedNats,
    bus: Bus,
    follower_bus: Bus,
    tmp_path: Path,
    restart: Callable[[EmbeddedPostgres], Awaitable[None]],
) -> None:
    url = own_postgres.url
    source, copiers = Source(url, bus), Copiers(url, server.url, tmp_path)
    following = await Following(url, follower_bus).start()
    try:
        for replica in ("a", "b"):
            copiers.start(replica)
        await wait_for_copies(url, [0] * 60)
        await a_standby_waits(url)
        (leader,) = await leaders(url)
        copiers.supervise(leader)
        standby = copiers.processes["b" if leader == "a" else "a"]
        before = following.follower.positions["copy"].seq
        await restart(own_postgres)
        await until(lambda: source.lost >= 1)
        await until(lambda: following.follower.positions["copy"].seq > before + 60)
        await source.stop()
        seqs = await source_seqs(url)
        await wait_for_copies(url, seqs)
        assert_each_once(await copies(url), seqs)
        await until(lambda: list(following.state.seen) == seqs)
        await until(lambda: len(following.state.copied) > 0 and following.follower.lag == 0)
        assert following.follower.reloads == 0, "the log continued at its head"
        assert standby.running, "the replica that waits for the lock, or has it since, outlives a restart of Postgres"
    finally:
        await source.stop()
        await following.close()
        await copiers.close()
        print(copiers.logs())


async def test_a_postgres_restored_to_an_earlier_point_is_noticed_and_folded_anew(
    own_postgres: EmbeddedPostgres, server: EmbeddedNats, bus: Bus, follower_bus: Bus, tmp_path: Path
) -> None:
    url = own_postgres.url
    source, copiers = Source(url, bus), Copiers(url, server.url, tmp_path)
    following = await Following(url, follower_bus).start()
    quiet = await Following(url, None, service="quiet").start()
    try:
        copiers.start("a", KOORD_SNAPSHOT_INTERVAL_S="0.5")
        copiers.supervise("a")
        await wait_for_copies(url, [0] * 60)
        await source.stop()
        await own_postgres.stop()
        await own_postgres.save_data(tmp_path / "earlier")
        await own_postgres.start()
        source = Source(url, bus)
        at_copy = following.follower.positions["copy"].seq
        await until(lambda: following.follower.positions["copy"].seq > at_copy + 100)
        await until(lambda: quiet.follower.positions["copy"].seq > at_copy + 100)
        await source.stop()

        await own_postgres.stop()
        await own_postgres.put_back_data(tmp_path / "earlier")
        await own_postgres.start()
        source = Source(url, bus)
        await until(lambda: following.follower.reloads >= 1)
        await until(lambda: quiet.follower.reloads >= 1)
        at_copy = following.follower.positions["copy"].seq
        await until(lambda: following.follower.positions["copy"].seq > at_copy + 60)
        await source.stop()
        seqs = await source_seqs(url)
        await wait_for_copies(url, seqs)
        assert_each_once(await copies(url), seqs)
        for one in (following, quiet):
            await has_all(one, seqs)
            assert sorted(of for copied in one.state.copied.values() for of in copied) == seqs
            assert one.follower.reloads == 1
    finally:
        await source.stop()
        await following.close()
        await quiet.close()
        await copiers.close()
        print(copiers.logs())
