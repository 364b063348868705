"""A writer of one context whose State is folded as a service folds it, with small partitions, and its retention."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from shared.events import Draft, Event, RecordedEvent
from shared.log.database import Database
from shared.log.follower import Follower
from shared.log.reader import LogReader
from shared.log.table_names import table_of
from shared.log.writer import LogWriter
from shared.runtime.retention import retain
from shared.runtime.retention_settings import Retention
from shared.runtime.service import Environment, Runtime, Service

DAY_NS = 86_400 * 10**9


async def narrow(database: Database, context: str, rows: int) -> None:
    """Gives a context that is still empty partitions of a few rows."""
    table = table_of(context)
    async with database.transaction() as connection:
        await connection.execute("update contexts set partition_rows = $1 where context = $2", rows, context)
        await connection.execute(f"drop table {table}_p0, {table}_p1, {table}_p2")
        await connection.fetchval("select koord_extend($1, 0)", context)


async def grow_old(database: Database, context: str, days: float = 100.0) -> None:
    """Lets the server have found the full partitions of a context so long ago."""
    async with database.transaction() as connection:
        await connection.fetchval("select koord_extend($1, 0)", context)
        await connection.execute(
            "update full_partitions set at = at - make_interval(secs => $1) where context = $2", days * 86_400, context
        )


async def partitions(database: Database, context: str) -> list[str]:
    """Returns the names of a context's partitions that have events, the oldest first."""
    table = table_of(context)
    async with database.reading() as connection:
        found = [name for (name,) in await connection.fetch(f"select distinct tableoid::regclass::text from {table}")]
        return sorted(found, key=lambda name: int(name.rpartition("_p")[2]))


class Retaining:
    """The writer of a service's context, as far as retention needs a runtime.

    Attributes:
        meanwhile: what is appended between the reading of a partition and the copies of what holds in it.
    """

    def __init__(self, url: str, service: Service, kept: Retention = Retention(days=30.0)) -> None:  # noqa: B008
        self.service = service.member(0, 1)
        self.retention = kept
        self.environment = Environment(postgres=url)
        self.database = Database(url)
        self.log = LogReader(self.database)
        self.meanwhile: list[Draft] = []
        self.disk_free: float | None = None
        self.wal_disk_free: float | None = None
        own = self.service.writes
        self.follower = Follower("retaining", self.log, None, self.service.follows, service.new_state, own=own)
        self._log_writer = LogWriter(self.database, None, own, "test", self.follower.own)
        self.writer = self

    async def start(self, now_ns: int) -> "Retaining":
        """Leads, from that instant on."""
        await self.follower.start()
        await self._log_writer.acquire()
        self.follower.take_over()
        await self._log_writer.begin("1", (), now_ns=now_ns, seen={})
        return self

    @property
    def state(self) -> Any:
        """The live State."""
        return self.follower.state

    def now_ns(self) -> int:
        """Reads the clock."""
        return time.time_ns()

    async def append(self, *events: Event | Draft, now_ns: int) -> list[RecordedEvent]:
        """Appends events at an instant."""
        drafts = [event if isinstance(event, Draft) else Draft(event) for event in events]
        return await self._log_writer.append(drafts, now_ns=now_ns, seen=dict(self.state.positions))

    async def append_from(self, build: Any, *, now_ns: int, seen: Mapping[str, int]) -> list[RecordedEvent]:
        """As the writer's own, after what is to be appended meanwhile."""
        meanwhile, self.meanwhile = self.meanwhile, []
        if meanwhile:
            await self._log_writer.append(meanwhile, now_ns=now_ns, seen=seen)
        return await self._log_writer.append_from(build, now_ns=now_ns, seen=seen)

    async def retain(self) -> int:
        """Applies retention until there is nothing to drop; returns how many partitions went."""
        gone = 0
        while await retain(cast("Runtime", self)):
            gone += 1
        return gone

    async def folded_anew(self) -> Any:
        """Returns the State of a fold from the oldest kept event to the positions of the live one."""
        fresh = Follower("anew", self.log, None, self.service.follows, self.service.new_state)
        await fresh.caught_up(self.state.positions)
        return fresh.state

    async def rows(self, kind: type[Event]) -> Sequence[Any]:
        """Returns the rows of a type in the service's context."""
        return [row async for row in self.log.rows(context=self.service.writes, kind=kind.__name__)]

    async def close(self) -> None:
        """Ends."""
        await self._log_writer.close()
        await self.follower.stop()
        await self.database.close()
