"""A log that is restored to an earlier point while a follower reads it: a State is folded from one of the two logs,
never from both."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from shared.log import follower as follower_module
from shared.log.database import Database
from shared.log.follower import Follower
from shared.log.position import Position
from shared.log.reader import LogReader, MissingEvents
from tests.support.copier_service import SERVICE, CopyState
from tests.support.log_system import Writer
from tests.support.waiting import until

OURS = "source"


class Interrupted(LogReader):
    """A reader of the log with a hook between its reads.

    Attributes:
        after_head: runs once the head of `source` was read, before anything is read up to it; each is run once.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.after_head: list[Callable[[], Awaitable[None]]] = []

    async def head(self, context: str) -> Position:
        head = await super().head(context)
        if context == OURS and self.after_head:
            await self.after_head.pop(0)()
        return head


@pytest.fixture
async def follower(url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A follower that reads when the test calls it, and at no other time."""
    monkeypatch.setattr(follower_module, "GRACE_S", 0)
    monkeypatch.setattr(follower_module, "POLL_INTERVAL_S", 3600)
    monkeypatch.setattr(follower_module, "BEACON_LATE_S", -1)
    database = Database(url)
    made = Follower("test", Interrupted(database), None, SERVICE.follows, CopyState)
    yield made
    await made.stop()
    await database.close()


async def cut(url: str, after: int) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("delete from events_source where seq > $1", after)
    await connection.close()


async def test_a_log_that_is_restored_again_during_a_load_is_loaded_as_it_is_then(
    url: str, writer: Writer, follower: Any
) -> None:
    await writer.see(40, size=7)
    await follower.start()
    await cut(url, 30)

    async def once_more() -> None:
        await cut(url, 20)

    async def nothing() -> None:
        pass

    follower._reader.after_head = [nothing, once_more]  # the poll's read of the head, then the load's
    await follower._poll_heads()
    await until(lambda: follower.positions[OURS].seq, "the log as it is now", holds=lambda seq: seq == 20)
    assert (follower.reloads, follower.failed.done()) == (1, False)
    assert list(follower.state.seen) == list(range(2, 21))


async def test_seqs_that_are_missing_until_the_next_writer_fills_them_are_no_gap(
    url: str, writer: Writer, follower: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await writer.see(20)
    await writer.close()
    short: list[str] = []

    async def pages(*arguments: Any) -> Any:
        # Read while the seqs 18 to 21 were gone; they are there again when the head is read.
        if not short and arguments[1] == OURS:
            short.append(OURS)
            raise MissingEvents(OURS, 0, 21, 17)
        async for page in LogReader.pages(*arguments):
            yield page

    monkeypatch.setattr(Interrupted, "pages", pages)
    await follower.start()
    assert short == [OURS]
    assert follower.positions[OURS] == await follower._reader.head(OURS)
    assert list(follower.state.seen) == list(range(2, 22))


async def test_a_gap_that_stays_ends_the_load(url: str, writer: Writer, follower: Any) -> None:
    await writer.see(20)
    connection = await asyncpg.connect(url)
    await connection.execute("delete from events_source where seq = 9")
    await connection.close()
    with pytest.raises(MissingEvents, match="20 of the 21 events from 1 to 21 are there"):
        async with asyncio.timeout(240):
            await follower.start()
