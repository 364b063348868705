"""Partitions are created before they are needed, an append may span several, and none of this waits for a reader."""

import asyncio
import re
from collections.abc import AsyncIterator

import asyncpg
import pytest

from shared.bus import Bus
from shared.log.reader import LogReader
from tests.support.copier_service import Seen
from tests.support.log_system import Following, Writer, declare
from tests.support.waiting import until

ROWS = 10


@pytest.fixture
async def narrow(database: str) -> str:
    await declare(database, rows=ROWS)
    return database


@pytest.fixture
async def writer(narrow: str, bus: Bus) -> AsyncIterator[Writer]:
    started = await Writer(narrow, bus).start()
    yield started
    await started.close()


async def partitions(url: str, context: str = "source") -> list[str]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "select inhrelid::regclass::text as name from pg_inherits where inhparent = to_regclass($1)",
        f"events_{context}",
    )
    await connection.close()
    return sorted((row["name"] for row in rows), key=lambda name: int(name.rpartition("_p")[2]))


def numbered(*numbers: int) -> list[str]:
    return [f"events_source_p{number}" for number in numbers]


async def test_two_partitions_are_kept_ahead_of_the_head(narrow: str, writer: Writer) -> None:
    assert await partitions(narrow) == numbered(0, 1, 2)
    await writer.see(20)

    async def ahead() -> bool:
        return await partitions(narrow) == numbered(0, 1, 2, 3, 4)

    await until(ahead)
    assert writer.log._room == 50


async def test_one_append_may_span_any_number_of_partitions(narrow: str, writer: Writer, follower_bus: Bus) -> None:
    following = await Following(narrow, follower_bus).start()
    appended = await writer.append(*(Seen(name=f"n{number}") for number in range(123)))
    assert await partitions(narrow) == numbered(*range(15))
    appended += await writer.see(77, size=30)
    await until(lambda: len(following.state.seen) == 200)
    read = await Following(narrow, None).start()
    assert list(read.state.seen) == appended
    assert read.follower.positions == following.follower.positions
    connection = await asyncpg.connect(narrow)
    assert await connection.fetchval("select count(*) from events_source_p7") == ROWS
    await connection.close()
    await read.close()
    await following.close()


async def test_partitions_are_created_during_a_long_transaction_of_a_reader(narrow: str, writer: Writer) -> None:
    await writer.see(5)
    reading = await asyncpg.connect(narrow)
    transaction = reading.transaction(isolation="repeatable_read")
    await transaction.start()
    assert await reading.fetchval("select count(*) from events") == 6
    assert await reading.fetchval("select max(seq) from events_source") == 6
    await writer.append(
        *(Seen(name="n") for _ in range(100))
    )  # would wait for the reader, which waits for the partition
    assert await reading.fetchval("select count(*) from events") == 6, "the reader still reads the same rows"
    await transaction.rollback()
    await reading.close()
    assert len(await partitions(narrow)) == 13


async def test_a_writer_continues_while_the_creation_of_partitions_waits(narrow: str, writer: Writer) -> None:
    holding = await asyncpg.connect(narrow)
    transaction = holding.transaction()
    await transaction.start()
    await holding.execute("lock table events_source in share update exclusive mode")  # as a DETACH has
    await writer.see(20)
    assert writer.log.head.seq == 21
    await asyncio.sleep(3.5)  # longer than the deadline of the hold on the lock
    assert not writer.log.lost.done()
    await writer.see(2)
    await transaction.rollback()
    await holding.close()

    async def ahead() -> bool:
        return len(await partitions(narrow)) >= 5

    await until(ahead)


async def test_a_fold_begins_at_the_oldest_kept_partition_and_logs_it(
    narrow: str, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    behind = await Following(narrow, None).start()
    await writer.see(60, size=12)
    connection = await asyncpg.connect(narrow)
    for number in range(2):
        await connection.execute(f"alter table events_source detach partition events_source_p{number}")
        await connection.execute(f"drop table events_source_p{number}")
    following = await Following(narrow, None).start()
    assert list(following.state.seen) == list(range(20, 62))
    assert "the fold begins at the oldest kept event" in caplog.text
    await until(lambda: list(behind.state.seen)[-1:] == [61])
    await connection.execute("delete from events_source where seq in (20, 21)")
    assert await LogReader(following.database).oldest("source") is None
    broken = Following(narrow, None)
    with pytest.raises(Exception, match="koord audit verify --log source names the first that is missing"):
        await broken.start()
    for one in (behind, following, broken):
        await one.close()
    await connection.close()


async def test_an_invalid_name_of_a_context_is_rejected(database: str) -> None:
    for name in ("Source", "a b", "a'; drop table events; --", "a-b", ""):
        with pytest.raises(asyncpg.RaiseError, match="is not a name such as quota or metrics-0"):
            await declare(database, contexts=[name])


async def test_only_a_role_that_may_write_a_log_takes_its_lock_or_extends_it(narrow: str, writer: Writer) -> None:
    admin = await asyncpg.connect(narrow)
    await admin.execute("create role koord_reader login password 'read'")
    await admin.execute("grant usage on schema public to koord_reader")
    await admin.execute("grant select on events to koord_reader")
    await admin.execute("grant execute on all functions in schema public to koord_reader")
    await admin.execute("revoke execute on function koord_declare_context(text, bigint) from koord_reader")
    try:
        reader = await asyncpg.connect(re.sub(r"//.*@", "//koord_reader:read@", narrow))
        for statement in (
            "select koord_writer('source')",
            "select koord_extend('source', 1000000)",
            "select koord_declare_context('other', 10)",
            "select koord_end_silent_writer('source', interval '0')",
            "select koord_drop_partition('source', 'events_source_p0')",
            "select pg_advisory_lock(koord_lock_key('source'))",
            "select pg_try_advisory_lock_shared(1, 2)",
            "insert into events_source select * from events",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await reader.execute(statement)
        await reader.close()
    finally:
        await admin.execute("drop owned by koord_reader")
        await admin.execute("drop role koord_reader")
        await admin.close()
    await writer.see(1)
