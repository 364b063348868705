"""The gateway as a process, with a real log and a real API server."""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from cli.embedded import EmbeddedNats
from cli.processes.child_process import Process
from shared.bus import Bus
from shared.events import Draft, Event, RecordedEvent
from shared.log.database import Database
from shared.log.reader import LogReader, Row
from shared.log.writer import LogWriter
from tests.support.waiting import until

SCHEDULING = ("koord.scheduling.PodPlaced.v1", "koord.scheduling.PodUnschedulable.v1")


class System:
    """A gateway process, writers of `scheduling` and `slo`, and reads of `cluster`.

    Attributes:
        gateway: the process; a test may kill it and start it again.
    """

    def __init__(self, gateway: Process, reader: LogReader, writers: Mapping[str, LogWriter], bus: Bus) -> None:
        self.gateway = gateway
        self._reader = reader
        self._writers = writers
        self._bus = bus

    async def request(self, subject: str, payload: bytes = b"") -> bytes:
        """Sends a request to the gateway."""
        return await self._bus.request(subject, payload, deadline_s=60)

    async def decide(self, *intents: Event, context: str = "scheduling") -> list[RecordedEvent]:
        """Appends intents to a context."""
        return await self._writers[context].append([Draft(intent) for intent in intents], now_ns=time.time_ns())

    async def rows(self, kind: str = "", key: str = "") -> list[Row]:
        """Returns events of `cluster`, by the end of their type name and their key."""
        rows = [row async for row in self._reader.rows(context="cluster")]
        return [row for row in rows if row.type.endswith(f".{kind}.v1" if kind else "") and key in ("", row.key)]

    async def until(self, condition: Callable[[list[Row]], object]) -> list[Row]:
        """Waits until the rows of `cluster` satisfy a condition; returns them."""
        return await until(self.rows, holds=condition)

    async def counts(self) -> Counter[str]:
        """Returns the number of events of each type."""
        return Counter(row.type.split(".")[2] for row in await self.rows())


@asynccontextmanager
async def running(
    kubeconfig: Path, postgres: str, folder: Path, env: Mapping[str, str] | None = None, own: Sequence[Event] = ()
) -> AsyncIterator[System]:
    """Starts everything; the gateway may not have listed anything yet.

    Args:
        own: events of an earlier writer of `cluster`.
    """
    async with EmbeddedNats(folder / "nats") as nats:
        settings = {
            "KOORD_POSTGRES": postgres,
            "KOORD_NATS": nats.url,
            "KOORD_GATEWAY_KUBECONFIG": str(kubeconfig),
            **(env or {}),
        }
        command = [sys.executable, "-P", "-m", "cli", "run", "gateway"]
        gateway = Process("gateway", command, folder / "gateway.log", env=os.environ | settings)
        database = Database(postgres)
        bus = Bus(nats.url, name="scheduling")
        await bus.start()
        writers = {context: LogWriter(database, bus, context, "test@1") for context in ("scheduling", "slo")}
        try:
            for writer in writers.values():
                await writer.acquire()
                await writer.begin("test", (), now_ns=time.time_ns(), seen={})
            if own:
                await _append_earlier(database, bus, own)
            gateway.start()
            yield System(gateway, LogReader(database), writers, bus)
        finally:
            await asyncio.to_thread(gateway.stop)
            for writer in writers.values():
                await writer.close()
            await bus.close()
            await database.close()


async def _append_earlier(database: Database, bus: Bus, events: Sequence[Event]) -> None:
    writer = LogWriter(database, bus, "cluster", "earlier@1")
    await writer.acquire()
    await writer.begin("test", (), now_ns=time.time_ns(), seen={})
    await writer.append([Draft(event) for event in events], now_ns=time.time_ns())
    await writer.close()
