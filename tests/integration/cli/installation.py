"""An installation without its services: writers of contexts that announce on a bus, and followers that registered."""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg

from cli.doctor.all_checks import examine
from cli.doctor.finding import Finding
from cli.supervisor.endpoints import Endpoints
from shared.bus import Bus
from shared.events import Cause, Draft, Event
from shared.log.database import Database
from shared.log.service_store import ServiceStore
from shared.log.writer import LogWriter

SECOND = 1_000_000_000


class Installation:
    """Writers of contexts on a database and a bus, as services would be."""

    def __init__(self, postgres: str, nats: str, folder: Path, open_: AsyncExitStack) -> None:
        self.endpoints = Endpoints(postgres, nats)
        self.folder = folder
        self._open = open_
        self._writers: dict[str, LogWriter] = {}

    async def leads(self, context: str, *, actor: str = "test@1", emits: Sequence[type[Event]] = ()) -> None:
        """Starts a writer that announces on the bus."""
        database = Database(self.endpoints.postgres)
        self._open.push_async_callback(database.close)
        bus = Bus(self.endpoints.nats, name=context)
        await bus.start()
        self._open.push_async_callback(bus.close)
        writer = self._writers[context] = LogWriter(database, bus, context, actor)
        await writer.acquire()
        self._open.push_async_callback(writer.close)
        await writer.begin("0.0", emits, now_ns=time.time_ns(), seen={})

    def epoch(self, context: str) -> int:
        return self._writers[context].epoch

    async def silence(self) -> None:
        """Ends the writers, and with them their beacons."""
        for writer in self._writers.values():
            await writer.close()

    async def append(self, context: str, *events: Event, age_s: float = 0, cause: Cause | None = None) -> None:
        now_ns = time.time_ns() - int(age_s * SECOND)
        await self._writers[context].append([Draft(event, cause) for event in events], now_ns=now_ns)

    async def follows(self, service: str, positions: dict[str, int]) -> None:
        database = Database(self.endpoints.postgres)
        await ServiceStore(database, service).register(positions, {})
        await database.close()

    async def sql(self, statement: str) -> None:
        connection = await asyncpg.connect(self.endpoints.postgres)
        await connection.execute(statement)
        await connection.close()

    async def examine(self) -> list[Finding]:
        return await examine(self.endpoints, self.folder)
