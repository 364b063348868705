"""The writer's lock: one writer at a time, the next one when it is gone or silent, and never two."""

import asyncio
import re
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from cli.embedded import EmbeddedPostgres
from shared.events import Draft
from shared.events.log import WriterStarted
from shared.log.writer import SILENT_HOLDER_S, LostHead
from tests.support.copier_service import Seen
from tests.support.log_system import Writer, declare
from tests.support.waiting import until

HOLDER = """
    select l.pid, a.state, a.query from pg_locks l join pg_stat_activity a using (pid)
    where l.locktype = 'advisory' and l.granted and l.database = (select oid from pg_database where datname = current_database())
"""


@pytest.fixture
async def admin(url: str) -> AsyncIterator[asyncpg.Connection]:
    opened = await asyncpg.connect(url)
    yield opened
    await opened.close()


async def stored(admin: asyncpg.Connection) -> list[tuple[int, str]]:
    rows = await admin.fetch("select seq, type from events_source order by seq")
    return [(row["seq"], row["type"].split(".")[2]) for row in rows]


async def test_the_next_writer_waits_until_the_lock_is_released(url: str, admin: asyncpg.Connection) -> None:
    first, second = await Writer(url).start(), Writer(url, actor="test@2")
    waiting = asyncio.create_task(second.start())
    await first.see(5)
    await asyncio.sleep(SILENT_HOLDER_S + 2.5)
    assert not waiting.done(), "a writer that holds its lock each second is not silent"
    await first.see(1)
    await first.close()
    await waiting
    assert second.log.epoch > first.log.epoch
    await second.see(1)
    assert await stored(admin) == [
        (1, "WriterStarted"), *((seq, "Seen") for seq in range(2, 8)), (8, "WriterStarted"), (9, "Seen"),
    ]  # fmt: skip
    await second.close()


async def test_an_epoch_is_above_every_earlier_one_and_the_databases_clock(url: str, admin: asyncpg.Connection) -> None:
    first = await Writer(url).start()
    assert abs(first.log.epoch - time.time() * 1000) < 60_000
    far = WriterStarted(epoch=first.log.epoch + 10**9, release="0")
    await first.log.append([Draft(far)], now_ns=time.time_ns(), seen={})
    await first.close()
    second = await Writer(url).start()
    assert second.log.epoch == first.log.epoch + 10**9 + 1
    await second.close()


async def test_a_writer_whose_connection_is_cut_notices_and_writes_nothing_more(
    url: str, admin: asyncpg.Connection
) -> None:
    first, second = await Writer(url).start(), Writer(url, actor="test@2")
    await first.see(3)
    waiting = asyncio.create_task(second.start())
    holder = await admin.fetchrow(HOLDER)
    await admin.execute("select pg_terminate_backend($1)", holder["pid"])
    await until(first.log.lost.done)
    with pytest.raises(LostHead, match="connection of the writer of source to Postgres failed"):
        await first.see(1)
    with pytest.raises(LostHead):
        await first.log.check_lock()
    await waiting
    await second.see(2)
    assert [kind for _, kind in await stored(admin)] == ["WriterStarted", *["Seen"] * 3, "WriterStarted", *["Seen"] * 2]
    await first.close()
    await second.close()


async def test_a_writer_that_stopped_in_the_middle_of_a_copy_is_ended(url: str, admin: asyncpg.Connection) -> None:
    hung = await Writer(url).start()
    await hung.see(2)
    for task in hung.log._keepers:
        task.cancel()
    sent = asyncio.Event()

    async def rows() -> AsyncIterator[bytes]:
        yield b"source\t4\tkoord.source.Seen.v1\t1\tn\t2030-01-01\ttest@1\t\\N\t\\N\t\\\\x00\t\\\\x00\n"
        sent.set()
        await asyncio.Event().wait()

    copying = asyncio.create_task(hung.log._connection.copy_to_table("events_source", source=rows()))
    await sent.wait()
    began = time.monotonic()
    second = await asyncio.wait_for(Writer(url, actor="test@2").start(), 240)
    assert time.monotonic() - began >= SILENT_HOLDER_S, "not at once: a COPY may wait for its client for a moment"
    copying.cancel()
    await asyncio.gather(copying, return_exceptions=True)
    assert await stored(admin) == [(1, "WriterStarted"), (2, "Seen"), (3, "Seen"), (4, "WriterStarted")]
    await second.close()
    await hung.close()


async def test_a_busy_writer_is_not_silent(url: str, admin: asyncpg.Connection) -> None:
    busy = await Writer(url).start()
    for task in busy.log._keepers:
        task.cancel()
    working = asyncio.create_task(busy.log._connection.execute("select pg_sleep(8)"))
    second = Writer(url, actor="test@2")
    waiting = asyncio.create_task(second.start())
    await working
    assert not waiting.done()
    await busy.see(1)
    await busy.close()
    await waiting
    await second.close()


async def test_a_standby_ends_no_writer_of_another_database(
    url: str, postgres: EmbeddedPostgres, template: str, admin: asyncpg.Connection
) -> None:
    name = "another_system"
    other = await postgres.create_database(name, template)
    try:
        await declare(other)
        idle = await Writer(other).start()
        for task in idle.log._keepers:
            task.cancel()
        await asyncio.sleep(SILENT_HOLDER_S + 0.5)
        assert await admin.fetchval("select koord_end_silent_writer('source', interval '3 s')") == 0
        await idle.see(1)
        await idle.close()
    finally:
        await postgres.drop_database(name)


async def test_of_two_concurrent_writers_one_continues(url: str, admin: asyncpg.Connection) -> None:
    """Disables the lock: the primary key of the log itself rejects the second row of a seq."""
    first = await Writer(url).start()
    await first.see(3)
    second = Writer(url, actor="test@2")
    second.log._connection = await second.database.dedicated()
    second.log.head, second.log._room = first.log.head, 1_000_000
    outcomes = await asyncio.gather(first.see(5, size=5), second.see(5, size=5), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["LostHead", "list"]
    assert [seq for seq, _ in await stored(admin)] == list(range(1, 10))
    for one in (first, second):
        await one.close()


async def test_an_append_that_is_cancelled_leaves_the_head_in_doubt(url: str, admin: asyncpg.Connection) -> None:
    writer = await Writer(url).start()
    await admin.execute("begin; lock table events_source in exclusive mode")
    appending = asyncio.create_task(writer.see(1))
    await asyncio.sleep(0.3)
    appending.cancel()
    await asyncio.gather(appending, return_exceptions=True)
    await admin.execute("rollback")
    assert writer.log.lost.done()
    with pytest.raises(LostHead):
        await writer.append(Seen(name="after"))
    await writer.close()


async def test_an_append_that_takes_long_does_not_end_its_writer(url: str, admin: asyncpg.Connection) -> None:
    writer = await Writer(url).start()
    await admin.execute("begin; lock table events_source in exclusive mode")
    appending = asyncio.create_task(writer.see(1))
    await asyncio.sleep(4.5)
    assert not appending.done()
    await admin.execute("rollback")
    assert await appending == [2]
    assert not writer.log.lost.done()
    await writer.close()


async def test_a_role_that_may_not_write_fails_at_once(url: str, admin: asyncpg.Connection) -> None:
    await admin.execute("create role koord_stranger login password 'strange'")
    await admin.execute("grant usage on schema public to koord_stranger")
    await admin.execute("grant execute on function koord_writer(text), koord_check_writer(text) to koord_stranger")
    try:
        stranger = Writer(re.sub(r"//.*@", "//koord_stranger:strange@", url))
        with pytest.raises(LostHead, match="koord_stranger may not write the log source"):
            await asyncio.wait_for(stranger.start(), 240)
        await stranger.close()
    finally:
        await admin.execute("drop owned by koord_stranger")
        await admin.execute("drop role koord_stranger")
