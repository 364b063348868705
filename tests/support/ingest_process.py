"""Ingest as a process, with a real log behind it, real brokers in front, and a gateway that only observes."""

import itertools
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cli.embedded import EmbeddedNats
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from shared.agents import receipt, subjects
from shared.agents.receipt import Receipt
from shared.agents.report import ApplicationSum, Forecast, PodSum, Report, Series, encode
from shared.bus import Bus
from shared.events import EVENT_TYPES, Draft, Event
from shared.events.metrics import NodeReported
from shared.kube.instants import SECOND
from shared.log.database import Database
from shared.log.reader import LogReader
from shared.log.writer import LogWriter
from tests.support.waiting import until

T = TypeVar("T")
CORE = 1_000_000
"""Micro-cores."""


class IngestSystem:
    """A log with a gateway that only observes, and ingest processes.

    Attributes:
        bus: of an agent.
    """

    def __init__(self, database: Database, supervisor: Supervisor, gateway: LogWriter, bus: Bus) -> None:
        self.supervisor = supervisor
        self.gateway = gateway
        self.bus = bus
        self._reader = LogReader(database)

    async def observe(self, *events: Event) -> None:
        """Appends observations of the gateway."""
        await self.gateway.append([Draft(event) for event in events], now_ns=time.time_ns(), seen={})

    async def events(self, context: str, *kinds: type[Event]) -> list[Event]:
        """Returns the events of a context."""
        rows = [row async for row in self._reader.rows(context=context)]
        found = [msgspec.json.decode(row.data, type=EVENT_TYPES[row.type]) for row in rows]
        return [event for event in found if not kinds or isinstance(event, kinds)]

    async def reports(self, context: str = "metrics-0") -> list[NodeReported]:
        """Returns the recorded reports."""
        return [event for event in await self.events(context) if isinstance(event, NodeReported)]

    async def send(self, where: str, data: bytes, deadline_s: float = 15) -> Receipt:
        """Sends a request over NATS; returns the receipt."""
        return receipt.decode(await self.bus.request(where, data, deadline_s=deadline_s))

    async def report(self, report: Report) -> Receipt:
        """Sends a report over NATS."""
        return await self.send(subjects.subject(report.node, subjects.REPORT), encode(report))

    async def first(self, node: str, **measured: Any) -> NodeReported:
        """Reports until a report is recorded: one of a node that ingest has not folded yet only fills its windows."""
        numbers = itertools.count(1)

        async def sent() -> list[NodeReported]:
            assert (await self.report(report(node, next(numbers), boot="first", **measured))).accepted
            return [each for each in await self.reports() if each.node == node]

        return (await until(sent, holds=len))[0]


@asynccontextmanager
async def stage(
    database: str,
    nats: EmbeddedNats,
    folder: Path,
    *,
    mqtt: str = "",
    specs: Sequence[Spec] = (Spec("metrics-ingest", "metrics-ingest"),),
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[IngestSystem]:
    """Runs ingest until it leads."""
    common = {"KOORD_SNAPSHOT_INTERVAL_S": "0.5", **(env or {})}
    async with AsyncExitStack() as running:
        bus = Bus(nats.url, name="test")
        await bus.start()
        running.push_async_callback(bus.close)
        connection = Database(database)
        running.push_async_callback(connection.close)
        gateway = LogWriter(connection, bus, "cluster", "gateway@test")
        await gateway.acquire()
        await gateway.begin("0", (), now_ns=time.time_ns(), seen={})
        running.push_async_callback(gateway.close)
        supervisor = Supervisor(specs, Endpoints(database, nats.url, mqtt=mqtt), folder, env=common)
        running.push_async_callback(supervisor.stop)
        await supervisor.start()
        await supervisor.wait_until(lambda unit: unit.state == "leading", 240, "leading")
        yield IngestSystem(connection, supervisor, gateway, bus)


def report(
    node: str,
    seq: int = 1,
    *,
    at_ns: int | None = None,
    cores: float = 1,
    seconds: int = 60,
    boot: str = "b",
    pods: tuple[PodSum, ...] = (),
    applications: tuple[ApplicationSum, ...] | None = None,
    reclaimable: Forecast | None = None,
) -> Report:
    """Returns a steady minute of a node: `cores` and 1 GiB, half of it outside of pods."""
    offsets = tuple(range(1_000, seconds * 1_000 + 1, 1_000))
    cpu = int(cores * CORE)
    return Report(
        node=node,
        boot=boot,
        seq=seq,
        at_ns=time.time_ns() if at_ns is None else at_ns,
        interval_ns=seconds * SECOND,
        node_usage=Series(offsets, (cpu,) * seconds, (1 << 30,) * seconds),
        system_usage=Series(offsets, (cpu // 2,) * seconds, (1 << 29,) * seconds),
        pods=pods,
        applications=applications,
        reclaimable=reclaimable,
    )
