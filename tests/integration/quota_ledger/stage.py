"""A log, a gateway that only records observations, and the quota ledger as a process, with or without a scheduler."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from cli.embedded import EmbeddedNats
from cli.quota.rebuild_state import fold_log
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.accounting.verify_invariants_by_replay import verify
from shared.bus import Bus
from shared.domain.quota_charge import SUBJECT, ChargeRequest, ChargeResponse, decode_response, encode
from shared.events import Cause, Draft, Event, RecordedEvent
from shared.log.database import Database
from shared.log.reader import LogReader
from shared.log.writer import LogWriter


class Stage:
    """The writers and readers of a test.

    Attributes:
        cluster, scheduling: writers in place of gateway and scheduler; `scheduling` is None where a scheduler
            runs.
    """

    def __init__(self, supervisor: Supervisor, bus: Bus, log: LogReader, cluster: LogWriter) -> None:
        self.supervisor = supervisor
        self.bus = bus
        self.log = log
        self.cluster = cluster
        self.scheduling: LogWriter | None = None

    async def see(self, *events: Event, cause: Cause | None = None) -> list[RecordedEvent]:
        """Appends an observation as the gateway does."""
        drafts = [Draft(event, cause) for event in events]
        return await self.cluster.append(drafts, now_ns=time.time_ns(), seen={})

    async def decide(self, *events: Event) -> list[RecordedEvent]:
        """Appends a cycle as the scheduler does."""
        assert self.scheduling is not None
        seen = {"cluster": self.cluster.head.seq}
        return await self.scheduling.append([Draft(event) for event in events], now_ns=time.time_ns(), seen=seen)

    async def request(self, cycle: int, *groups: tuple[str, ...], deadline_s: float = 20) -> ChargeResponse:
        """Requests a charge as a scheduler would that has read everything."""
        assert self.scheduling is not None
        seen = {"cluster": self.cluster.head.seq, "scheduling": self.scheduling.head.seq}
        request = ChargeRequest(epoch=self.scheduling.epoch, cycle=cycle, seen=seen, groups=groups)
        return decode_response(await self.bus.request(SUBJECT, encode(request), deadline_s=deadline_s))

    async def projection(self) -> LedgerProjection:
        """Folds the ledger's log; fails when it does not balance."""
        folded = await fold_log(self.log)
        report = verify(folded.own)
        assert not report.findings, [str(finding) for finding in report.findings]
        return report.projection


@asynccontextmanager
async def stage(
    database: str,
    nats: EmbeddedNats,
    folder: Path,
    *services: str,
    env: Mapping[str, Mapping[str, str]] | None = None,
) -> AsyncIterator[Stage]:
    """Starts the services and waits until they lead; without the scheduler, the test acts as the scheduler.

    Args:
        env: service -> variables for it alone.
    """
    async with AsyncExitStack() as running:
        bus = Bus(nats.url, name="test")
        await bus.start()
        running.push_async_callback(bus.close)
        opened = Database(database)
        running.push_async_callback(opened.close)
        specs = [Spec(name, name, (env or {}).get(name, {})) for name in services]
        supervisor = Supervisor(
            specs,
            Endpoints(database, nats.url),
            folder,
            env={"KOORD_SNAPSHOT_INTERVAL_S": "1", "KOORD_REBUILD_INTERVAL_S": "1"},
        )
        running.push_async_callback(supervisor.stop)
        on = Stage(supervisor, bus, LogReader(opened), await _writer(running, opened, bus, "cluster"))
        if "scheduler" not in services:
            on.scheduling = await _writer(running, opened, bus, "scheduling")
        await supervisor.start()
        await supervisor.wait_leading(240)
        yield on


async def _writer(running: AsyncExitStack, database: Database, bus: Bus, context: str) -> LogWriter:
    writer = LogWriter(database, bus, context, f"{context}@test")
    await writer.acquire()
    await writer.begin("0", (), now_ns=time.time_ns(), seen={})
    running.push_async_callback(writer.close)
    return writer


def used(projection: LedgerProjection, name: str) -> dict[str, int]:
    return {key: size for key, size in projection.trees[""].quotas[name].used.items() if size}
