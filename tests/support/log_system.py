"""A small system of real components for the tests of the log: a writer of `source`, copier processes, and reads of
their logs.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from cli.processes.child_process import Process
from shared.bus import Bus
from shared.events import Draft, Event
from shared.log.database import Database
from shared.log.follower import Follower
from shared.log.reader import LogReader
from shared.log.writer import LogWriter
from shared.runtime.task_cancellation import cancel_and_wait
from tests.support.copier_service import SERVICE, CopyState, Seen
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]


async def declare(url: str, rows: int = 1_000_000, contexts: Sequence[str] = ("source", "copy")) -> None:
    """Adds the contexts of these tests to a migrated database."""
    connection = await asyncpg.connect(url)
    try:
        for context in contexts:
            await connection.execute("select koord_declare_context($1, $2)", context, rows)
    finally:
        await connection.close()


class Copy(NamedTuple):
    """An event of `copy`, as stored."""

    seq: int
    type: str
    actor: str
    of: int


async def copies(url: str) -> list[Copy]:
    """Returns all events of `copy`."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "select seq, type, actor, (convert_from(data, 'UTF8')::json->>'of')::bigint as of from events_copy order by seq"
        )
    finally:
        await connection.close()
    return [Copy(row["seq"], row["type"], row["actor"], row["of"] or 0) for row in rows]


def assert_each_once(found: Sequence[Copy], expected: Sequence[int]) -> None:
    """Checks that every event of `source` was copied once, in its order, and that `copy` has no gap."""
    assert [row.seq for row in found] == list(range(1, len(found) + 1))
    assert [row.of for row in found if row.of] == list(expected)


class Writer:
    """A writer of a context in this process, with connections of its own."""

    def __init__(self, url: str, bus: Bus | None = None, context: str = "source", actor: str = "test@1") -> None:
        self.database = Database(url)
        self.log = LogWriter(self.database, bus, context, actor)

    async def start(self, emits: Sequence[type[Event]] = ()) -> "Writer":
        """Takes the lock and begins an epoch."""
        await self.log.acquire()
        await self.log.begin("0", emits, now_ns=time.time_ns(), seen={})
        return self

    async def append(self, *events: Event) -> list[int]:
        """Commits the events. Returns their seqs."""
        records = await self.log.append([Draft(event) for event in events], now_ns=time.time_ns(), seen={})
        return [record.seq for record in records]

    async def see(self, count: int, size: int = 1, text: str = "") -> list[int]:
        """Appends `count` Seen events, `size` at a time. Returns their seqs."""
        seqs: list[int] = []
        while len(seqs) < count:
            batch = [Seen(name=f"n{i}", number=i, text=text) for i in range(len(seqs), min(count, len(seqs) + size))]
            seqs += await self.append(*batch)
        return seqs

    async def close(self) -> None:
        """Releases the lock."""
        await self.log.close()
        await self.database.close()


class Following:
    """A follower in this process."""

    def __init__(
        self,
        url: str,
        bus: Any = None,
        service: str = "test",
        new_state: Callable[[], Any] = CopyState,
        reads: Any = None,
    ) -> None:
        self.database = Database(url)
        self.reader = LogReader(self.database)
        self.follower = Follower(service, self.reader, bus, SERVICE.follows if reads is None else reads, new_state)

    async def start(self) -> "Following":
        """Loads the State, and follows from then on."""
        await self.follower.start()
        return self

    @property
    def state(self) -> Any:
        """The folded State."""
        return self.follower.state

    async def close(self) -> None:
        """Stops following."""
        await self.follower.stop()
        await self.database.close()


class Load:
    """Appends Seen events at a pace until it is stopped."""

    def __init__(self, writer: Writer, interval_s: float = 0.005) -> None:
        self.seqs: list[int] = []
        self._writer = writer
        self._interval_s = interval_s
        self._stopping = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._stopping:
            self.seqs += await self._writer.see(3, size=3)
            await asyncio.sleep(self._interval_s)

    async def stop(self) -> list[int]:
        """Ends after the append under way: a cancelled one could be in the log. Returns the seqs of all events."""
        self._stopping = True
        await self._task
        return self.seqs


class Copiers:
    """Copier processes of one database, by replica name; they are killed at the end."""

    def __init__(self, url: str, nats: str, folder: Path) -> None:
        self._environment = {"KOORD_POSTGRES": url, "KOORD_NATS": nats, "KOORD_COPIER_BATCH": "20"}
        self._folder = folder
        self._supervisors: dict[str, asyncio.Task[None]] = {}
        self.processes: dict[str, Process] = {}

    def start(self, replica: str, **environment: str) -> Process:
        """Starts a replica."""
        process = Process(
            f"copier {replica}",
            [sys.executable, "-m", "tests.support.copier_service"],
            self._folder / f"{replica}.log",
            env={**os.environ, "PYTHONPATH": str(ROOT), **self._environment, "KOORD_REPLICA": replica, **environment},
        )
        process.start()
        self.processes[replica] = process
        return process

    def supervise(self, replica: str) -> None:
        """Starts a replica again whenever it ends."""

        async def keep() -> None:
            process = self.processes[replica]
            while True:
                await process.ended()
                await asyncio.sleep(0.2)
                process.start()

        self._supervisors[replica] = asyncio.create_task(keep())

    async def close(self) -> None:
        """Kills all of them."""
        await cancel_and_wait(*self._supervisors.values())
        for process in self.processes.values():
            process.resume()
            process.kill()

    def logs(self) -> str:
        """Returns their logs, for a failed test."""
        return "\n".join(f"{name}: {process.tail(8)}" for name, process in self.processes.items())


async def a_standby_waits(url: str) -> None:
    """Waits until a session waits for a lock that another one holds."""
    connection = await asyncpg.connect(url)
    try:
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        await until(lambda: connection.fetchval(waiting), "a standby that waits for the lock")
    finally:
        await connection.close()


async def wait_for_copies(url: str, seqs: Sequence[int]) -> None:
    """Waits until as many events of `source` are copied as there are seqs; Postgres may be away meanwhile."""

    async def copied() -> int:
        try:
            return len([row for row in await copies(url) if row.of])
        except OSError:
            return 0

    await until(copied, f"{len(seqs)} copied events", holds=lambda count: count >= len(seqs))


async def leaders(url: str) -> list[str]:
    """Returns the replicas that have begun an epoch of `copy`, in order."""
    return [row.actor.partition("@")[2] for row in await copies(url) if "WriterStarted" in row.type]
