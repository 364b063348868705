"""`koord bench takeover`: how long nobody places pods when a scheduler starts, and when a standby takes over.

The log is that of a cluster at work. What is measured ends with the announcement of a placement: the pod was there
before, so the first cycle can place it. Scheduler, Postgres and NATS are processes of their own on this machine.
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import aiohttp
import click
import msgspec
import psutil
import uvloop

from cli.bench.takeover_cluster import fleet, pod, report
from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.processes.child_process import Process, ProgramFailed
from cli.processes.free_ports import free_port
from cli.service_list import contexts
from cli.terminal.output import show_table
from shared.bus import Bus
from shared.errors import KoordError
from shared.events import Draft, Event
from shared.events.log import WriterStarted
from shared.events.scheduling import PodPlaced
from shared.log import announcements
from shared.log.database import Database
from shared.log.migration import migrate
from shared.log.reader import LogReader
from shared.log.service_store import ServiceStore
from shared.log.writer import LogWriter
from shared.runtime.status import Status

WITHIN_S = 120.0
TAIL = 500
"""Reports that come after the snapshot: some seconds' worth."""

BATCH = 1_000


class Took(msgspec.Struct, frozen=True):
    """One start or take-over, in seconds.

    Attributes:
        placed_s: until the first placement is announced; what counts.
        leading_s: of these, until the replica was the writer.
        core_s: what the replica used of a core meanwhile: on an idle machine placed_s is little more.
    """

    placed_s: float
    leading_s: float
    core_s: float


class TakeoverFigures(msgspec.Struct, frozen=True):
    """Figures of `--json`.

    Attributes:
        start_s: from the process' start to its first placement, from a snapshot and a tail of 500 reports; the median
            turn.
        takeover_s: from the leader's SIGKILL to the first placement by a standby that followed; the median turn.
        first_start_s: the same as start_s without a snapshot, from the first event on.
        snapshot_mib: the State as it is stored, packed.
    """

    nodes: int
    pods: int
    start_s: float
    takeover_s: float
    first_start_s: float
    starts: tuple[Took, ...]
    takeovers: tuple[Took, ...]
    snapshot_mib: float
    load_1m: float


@click.command()
@click.option("--nodes", type=click.IntRange(min=1), default=5_000, show_default=True, help="Nodes with a report each.")
@click.option("--pods", type=click.IntRange(min=1), default=50_000, show_default=True, help="Pods that run on them.")
@click.option("--turns", type=click.IntRange(min=1), default=3, show_default=True, help="The median one counts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def takeover(*, nodes: int, pods: int, turns: int, as_json: bool) -> None:
    """Measure a scheduler's start and a standby's take-over: until the first pod is placed.

    Makes the log of a cluster at work, has the scheduler write a snapshot of it, and then starts and kills schedulers.
    """
    with tempfile.TemporaryDirectory(prefix="koord-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres may run as another user
        figures = uvloop.run(_measure(folder, nodes, pods, turns))
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), [(key, str(value)) for key, value in msgspec.structs.asdict(figures).items()])


async def _measure(folder: Path, nodes: int, pods: int, turns: int) -> TakeoverFigures:
    load_1m = os.getloadavg()[0]
    async with EmbeddedPostgres(folder / "postgres") as postgres, EmbeddedNats(folder / "nats") as nats:
        database = Database(postgres.url)
        await migrate(database, contexts())
        async with _Cluster(postgres.url, nats.url, nodes, pods) as cluster:
            click.echo(f"writing the log of {nodes:,} nodes and {pods:,} pods", err=True)
            await cluster.fill()
            replicas = [_replica(folder, name, postgres.url, nats.url) for name in ("one", "two")]
            click.echo("a start from the first event on", err=True)
            first = await _start(cluster, replicas[0])
            starts, takeovers = [], []
            for turn in range(turns):
                click.echo(f"turn {turn + 1} of {turns}", err=True)
                await asyncio.to_thread(replicas[0].process.stop, WITHIN_S)  # it drains, and writes a snapshot
                await cluster.go_on()
                starts.append(await _start(cluster, replicas[0]))
                takeovers.append(await _take_over(cluster, *replicas))
                replicas.reverse()
            await asyncio.to_thread(replicas[0].process.stop, WITHIN_S)
            stored = await ServiceStore(database, "scheduler").newest_snapshot(_schema(), LogReader(database))
        await database.close()
    assert stored is not None, "written at each end"
    return TakeoverFigures(
        nodes=nodes,
        pods=pods,
        start_s=_median(starts),
        takeover_s=_median(takeovers),
        first_start_s=first.placed_s,
        starts=tuple(starts),
        takeovers=tuple(takeovers),
        snapshot_mib=round(len(stored.data) / 2**20, 1),
        load_1m=round(load_1m, 2),
    )


def _schema() -> int:
    from services.scheduler.state.scheduler_state import SchedulerState

    return SchedulerState.SCHEMA


def _median(turns: Sequence[Took]) -> float:
    return sorted(turn.placed_s for turn in turns)[len(turns) // 2]


class _Replica:
    """One scheduler process.

    Attributes:
        name: it writes as `scheduler@NAME`.
    """

    def __init__(self, name: str, process: Process, http: str) -> None:
        self.name = name
        self.process = process
        self._status = f"http://{http}/statusz"

    async def is_standby(self) -> None:
        """Waits until it has read all, waits for the lock, and has nothing left to do."""
        async with asyncio.timeout(WITHIN_S), aiohttp.ClientSession() as session:
            while self.process.running:
                try:
                    async with session.get(self._status) as answer:
                        waits = msgspec.json.decode(await answer.read(), type=Status).state == "waiting-for-lock"
                    if waits and await asyncio.to_thread(self._is_idle):
                        return
                except aiohttp.ClientConnectionError:
                    pass  # it does not listen yet
                await asyncio.sleep(0.05)
        raise ProgramFailed(f"scheduler {self.name} has ended; its log ends with:\n{self.process.tail()}")

    def core_s(self) -> float:
        """Seconds of a core that its process has used."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def _is_idle(self) -> bool:
        """Reports that it has used less than a tenth of a core in a second."""
        return psutil.Process(self.process.pid).cpu_percent(1.0) < 10


def _replica(folder: Path, name: str, postgres: str, nats: str) -> _Replica:
    http = f"127.0.0.1:{free_port()}"
    own = {
        "KOORD_POSTGRES": postgres, "KOORD_NATS": nats, "KOORD_HTTP_ADDR": http, "KOORD_REPLICA": name, "KOORD_LOG_LEVEL": "warning",
    }  # fmt: skip
    command = [sys.executable, "-m", "cli", "run", "scheduler"]
    process = Process(name, command, folder / f"{name}.log", env={**os.environ, **own})
    return _Replica(name, process, http)


async def _start(cluster: "_Cluster", replica: _Replica) -> Took:
    name = await cluster.add_pod()
    cluster.listen()
    began = time.monotonic()
    replica.process.start()
    return await cluster.placed(name, began, 0.0, replica)


async def _take_over(cluster: "_Cluster", leader: _Replica, standby: _Replica) -> Took:
    standby.process.start()
    await standby.is_standby()
    cluster.listen()
    began, used_s = time.monotonic(), standby.core_s()
    leader.process.send(signal.SIGKILL)
    name = await cluster.add_pod()  # after the kill, so that it cannot be the one that is gone who places it
    return await cluster.placed(name, began, used_s, standby)


class _Cluster:
    """The gateway's part: the one writer of `cluster`, and a subscription to the scheduler's events."""

    def __init__(self, postgres: str, nats: str, nodes: int, pods: int) -> None:
        self._nodes = nodes
        self._pods = pods
        self._next = pods
        self._reported = 0
        self._database = Database(postgres)
        self._bus = Bus(nats, name="bench")
        self._writer = LogWriter(self._database, self._bus, "cluster", "bench")
        self._received: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._bus.start()
        await self._bus.subscribe(announcements.batch_subject("scheduling"), self._receive)
        await self._writer.acquire()
        await self._writer.begin("bench", (), now_ns=time.time_ns(), seen={})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._writer.close()
        await self._bus.close()
        await self._database.close()

    async def fill(self) -> None:
        """Appends everything there is."""
        events = list(fleet(self._nodes, self._pods, time.time_ns()))
        for start in range(0, len(events), BATCH):
            await self._append(events[start : start + BATCH])

    async def go_on(self) -> None:
        """Appends some reports."""
        numbers = [(self._reported + step) % self._nodes for step in range(min(TAIL, self._nodes))]
        self._reported += len(numbers)
        await self._append([report(each, range(each, self._pods, self._nodes), time.time_ns()) for each in numbers])

    async def add_pod(self) -> str:
        """A pod that waits; its name."""
        event = pod(self._next, time.time_ns())
        self._next += 1
        await self._append([event])
        return event.pod

    async def _append(self, events: Sequence[Event]) -> None:
        await self._writer.append([Draft(event) for event in events], now_ns=time.time_ns())

    def listen(self) -> None:
        """Clears the received instants."""
        self._received.clear()

    async def placed(self, name: str, began: float, used_s: float, replica: _Replica) -> Took:
        """Waits for the placement of a pod.

        Args:
            used_s: what the replica had used of a core when it began.

        Raises:
            ProgramFailed: the replica has ended.
            KoordError: the pod is not placed.
        """
        try:
            async with asyncio.timeout(WITHIN_S):
                while name not in self._received:
                    if not replica.process.running:
                        raise ProgramFailed(f"scheduler {replica.name} has ended:\n{replica.process.tail()}")
                    self._changed.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(1):
                            await self._changed.wait()
        except TimeoutError as error:
            raise KoordError(f"{name} is not placed after {WITHIN_S:g} s: {replica.process.tail()}") from error
        leading = self._received.get(WriterStarted.type_name(), began)
        core_s = replica.core_s() - used_s
        return Took(round(self._received[name] - began, 2), round(leading - began, 2), round(core_s, 2))

    def _receive(self, data: bytes) -> None:
        now = time.monotonic()
        for entry in announcements.decode_batch(data).entries:
            if entry.type == PodPlaced.type_name():
                self._received.setdefault(msgspec.json.decode(entry.data, type=PodPlaced).pod, now)
            elif entry.type == WriterStarted.type_name():
                self._received.setdefault(entry.type, now)
        self._changed.set()
