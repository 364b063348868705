"""`koord bench ingest`: what reports of a fleet cost metrics ingest, from an agent's question to a follower of the log.

A pod sample is one pod in one report. Reports are made and sent by a process of their own, as questions over NATS; each is answered
after the commit of what it led to: NodeReported and the NodeMetric's status. Nodes and pods are in the log before.
"""

import asyncio
import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import click
import msgspec
import psutil
import uvloop

from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.output import show_table
from cli.process import Process
from cli.services import contexts
from shared.agents import answer, subjects
from shared.agents.report import PodSum, Report, Series, encode
from shared.bus import Bus
from shared.errors import KoordError
from shared.events import Draft, Recorded
from shared.events.cluster import NodeMetricObserved, NodeObserved, PodObserved
from shared.events.intents import FieldsDecided
from shared.events.metrics import NodeReported
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Pod, PodSpec, PodStatus
from shared.log.database import Database, migrate
from shared.log.follower import Follower
from shared.log.reader import LogReader
from shared.log.writer import LogWriter

INTERVAL_S = 60
LONG_S = 1_500
"""The first report of each node is of 25 minutes, so that its windows are almost full."""
FILLING = 3
"""Reports of each node before anything is measured, with that one."""
MEASURED = 10_000
"""Reports that are then sent as fast as they are answered, or a little more: whole rounds of all nodes."""
MOST_ROUNDS = 20
"""More minutes would not lie within the windows."""
ANSWERED_S = 900.0
"""The first report is answered when ingest has read a million pods."""
AT_ONCE = 128
"""Questions without an answer, at most."""
MIB = 1024 * 1024


class IngestFigures(msgspec.Struct, frozen=True):
    """What `--json` prints.

    Attributes:
        pod_samples_per_s: taken and recorded, when reports come as fast as they are answered.
        pod_samples_per_core_s: the same for each second of cpu that the three use.
        cores_used: cpu of ingest, Postgres and NATS (children counted) for a report of each node once a minute, in cores.
        ingest_cores, postgres_cores, nats_cores: what each of them used of that.
        lag_p50_s, lag_p99_s: then: from sending a report until a follower in another process has its NodeReported.
        rss_mib: the most memory that ingest had resident.
        report_bytes, event_bytes, level_bytes: mean size of a report as sent, of a NodeReported, of what the NodeMetric must say.
        gib_per_day_10k: what 10,000 such nodes append to `metrics-*` in a day.
    """

    pod_samples_per_s: int
    pod_samples_per_core_s: int
    reports_per_s: int
    cores_used: float
    ingest_cores: float
    postgres_cores: float
    nats_cores: float
    lag_p50_s: float
    lag_p99_s: float
    rss_mib: int
    report_bytes: int
    event_bytes: int
    level_bytes: int
    gib_per_day_10k: float
    nodes: int
    pods_per_node: int
    seconds: float
    load_1m: float


@click.command()
@click.option("--nodes", type=click.IntRange(min=1), default=1_000, show_default=True, help="Nodes that report.")
@click.option("--pods-per-node", type=click.IntRange(0, 500), default=100, show_default=True, help="Pods on each.")
@click.option(
    "--seconds", type=float, default=60.0, show_default=True, help="How long one report a minute and node is measured."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def ingest(*, nodes: int, pods_per_node: int, seconds: float, as_json: bool) -> None:
    """Measure what reports of a fleet cost metrics ingest.

    First throughput, then cpu, memory and lag at one report a minute and node.

    Ingest, the sender of reports, Postgres and NATS are processes of their own on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="koord-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres may run as another user
        figures = uvloop.run(_measure(folder, nodes, pods_per_node, seconds))
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), [(name, str(value)) for name, value in msgspec.structs.asdict(figures).items()])


async def _measure(folder: Path, nodes: int, pods: int, seconds: float) -> IngestFigures:
    load_1m = os.getloadavg()[0]
    async with EmbeddedPostgres(folder / "postgres") as postgres, EmbeddedNats(folder / "nats") as nats:
        database = Database(postgres.url)
        await migrate(database, contexts(1))
        bus = Bus(nats.url, name="bench")
        await bus.start()
        click.echo(f"observing {nodes:,} nodes and {nodes * pods:,} pods", err=True)
        await _observe(database, bus, nodes, pods)
        environment = {**os.environ, "KOORD_POSTGRES": postgres.url, "KOORD_NATS": nats.url, "KOORD_MQTT": ""}
        command = [sys.executable, "-P", "-m", "cli", "run", "metrics-ingest"]
        process = Process("metrics-ingest", command, folder / "ingest.log", env=environment)
        process.start()
        try:
            servers = Servers(process, postgres, nats)
            return await _driven(servers, bus, nodes, pods, seconds, load_1m)
        finally:
            await asyncio.to_thread(process.stop)
            await bus.close()
            await database.close()


class Servers(NamedTuple):
    """The processes that are measured."""

    ingest: Process
    postgres: EmbeddedPostgres
    nats: EmbeddedNats

    def cpu_s(self) -> tuple[float, float, float]:
        """What each has used since it began."""
        return _cpu_s(self.ingest.pid), _cpu_s(self.postgres.pid), _cpu_s(self.nats.process.pid)


async def _driven(servers: Servers, bus: Bus, nodes: int, pods: int, seconds: float, load_1m: float) -> IngestFigures:
    heard, process = _Heard(), servers.ingest
    rounds = min(-(-MEASURED // nodes), MOST_ROUNDS)
    reader = LogReader(Database(servers.postgres.url))
    follower = Follower("bench", reader, bus, {"metrics-0": (NodeReported, FieldsDecided)}, lambda: heard, own=None)
    await follower.start()
    pipe, theirs = multiprocessing.get_context("spawn").Pipe()
    sender = multiprocessing.get_context("spawn").Process(
        target=_send, args=(theirs, servers.nats.url, nodes, pods, FILLING + rounds), daemon=True
    )
    sender.start()
    click.echo(f"{FILLING} reports of each node, to fill windows", err=True)
    await _said(pipe, ("flood", FILLING))
    click.echo(f"{rounds} reports of each node, as fast as they are answered", err=True)
    before = servers.cpu_s()
    flood_s, report_bytes, _ = await _said(pipe, ("flood", rounds))
    cpu_s = sum(servers.cpu_s()) - sum(before)
    click.echo(f"a report of each node every {INTERVAL_S} s, for {seconds:g} s", err=True)
    heard.begin()
    before = servers.cpu_s()
    _, _, sent = await _said(pipe, ("steady", seconds))
    async with asyncio.timeout(ANSWERED_S):
        while not sent.keys() <= heard.lags_of.keys():
            await asyncio.sleep(0.05)
    # Until the last is recorded: on a machine that is shared that is later, and what was put off is counted as well.
    cores = [round((now - then) / seconds, 3) for now, then in zip(servers.cpu_s(), before, strict=True)]
    pipe.send(None)
    await follower.stop()
    await reader.database.close()
    lags = sorted(heard.lags_of[which] - at for which, at in sent.items())
    event_bytes, level_bytes = heard.mean(NodeReported), heard.mean(FieldsDecided)
    return IngestFigures(
        pod_samples_per_s=round(nodes * pods * rounds / flood_s),
        pod_samples_per_core_s=round(nodes * pods * rounds / cpu_s),
        reports_per_s=round(nodes * rounds / flood_s),
        cores_used=round(sum(cores), 3),
        ingest_cores=cores[0],
        postgres_cores=cores[1],
        nats_cores=cores[2],
        lag_p50_s=round(lags[len(lags) // 2], 4),
        lag_p99_s=round(lags[int(len(lags) * 0.99)], 4),
        rss_mib=_peak_bytes(process) // MIB,
        report_bytes=report_bytes,
        event_bytes=event_bytes,
        level_bytes=level_bytes,
        gib_per_day_10k=round(10_000 * 1_440 * (event_bytes + level_bytes) / 2**30, 1),
        nodes=nodes,
        pods_per_node=pods,
        seconds=seconds,
        load_1m=load_1m,
    )


class _Heard:
    """A State that notes when it has folded which report, and how large events are."""

    SCHEMA: ClassVar[int] = 1

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.lags_of: dict[tuple[str, int], float] = {}  # (node, at_ns) -> when it was folded
        self._sizes: dict[type, list[int]] = {NodeReported: [], FieldsDecided: []}

    def apply(self, record: Recorded) -> None:
        event = record.event
        if isinstance(event, NodeReported):
            self.lags_of[event.node, event.at_ns] = time.monotonic()
        sizes = self._sizes.get(type(event))
        if sizes is not None and record.seq % 7 == 0:
            sizes.append(len(msgspec.json.encode(event)))
        self.positions[record.context] = record.seq

    def begin(self) -> None:
        """Forget what was noted before."""
        self.lags_of = {}
        self._sizes = {NodeReported: [], FieldsDecided: []}

    def mean(self, kind: type) -> int:
        sizes = self._sizes[kind]
        return sum(sizes) // max(1, len(sizes))

    def encode(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None:  # noqa: ARG002
        raise KoordError("a bench begins anew")


async def _observe(database: Database, bus: Bus, nodes: int, pods: int) -> None:
    writer = LogWriter(database, bus, "cluster", "bench")
    await writer.acquire()
    await writer.begin("bench", (), now_ns=time.time_ns(), seen={})
    drafts: list[Draft] = []
    for number in range(nodes):
        node = _node(number)
        drafts.append(Draft(NodeObserved(node=node, object=Node(metadata=Metadata(name=node)))))
        drafts.append(Draft(NodeMetricObserved(node=node, object=NodeMetric(metadata=Metadata(name=node)))))
        for pod in range(pods):
            uid = _uid(number, pod)
            metadata = Metadata(name=f"service-{pod:03}-7d9f8b6c5d-{number:05}", namespace="production", uid=uid)
            status = PodStatus(phase="Running", qos_class="BestEffort" if pod % 3 == 0 else "Burstable")
            held = Pod(metadata=metadata, spec=PodSpec(node_name=node), status=status)
            drafts.append(Draft(PodObserved(pod=metadata.key, pod_uid=uid, object=held)))
        if len(drafts) > 1_000:
            await writer.append(drafts, now_ns=time.time_ns(), seen={})
            drafts = []
    await writer.append(drafts, now_ns=time.time_ns(), seen={})
    await writer.close()


def _node(number: int) -> str:
    return f"node-{number:05}.rack-{number // 40:03}"


def _uid(node: int, pod: int) -> str:
    return f"{node:08x}-{pod:04x}-4000-8000-{node * 1_000 + pod:012x}"


def _cpu_s(pid: int | None) -> float:
    """Seconds of cpu of a process, of those that it has ended, and of those below it."""
    process = psutil.Process(pid)
    times = process.cpu_times()
    used = float(times.user + times.system + times.children_user + times.children_system)
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            used += _cpu_s(child.pid)
    return used


def _peak_bytes(process: Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


async def _said(pipe: Connection, command: tuple[str, float]) -> Any:
    pipe.send(command)
    return await asyncio.to_thread(pipe.recv)


# The sender: a process of its own.


def _send(pipe: Connection, nats: str, nodes: int, pods: int, minutes: int) -> None:
    uvloop.run(_Sender(pipe, nodes, pods, minutes).run(nats))


class _Sender:
    """Agents of all nodes. Each report is the next minute of its node, up to now."""

    def __init__(self, pipe: Connection, nodes: int, pods: int, minutes: int) -> None:
        self._pipe = pipe
        self._nodes = nodes
        self._minutes = 0
        self._began_ns = time.time_ns() - minutes * INTERVAL_S * SECOND
        self._bytes = 0
        self._reports = [_Reports(number, pods) for number in range(nodes)]
        self._bus: Bus

    async def run(self, nats: str) -> None:
        """Do what is asked for, until None is."""
        self._bus = Bus(nats, name="bench agents")
        await self._bus.start()
        while (command := await asyncio.to_thread(self._pipe.recv)) is not None:
            kind, amount = command
            if kind == "flood":
                self._pipe.send(await self._flood(int(amount)))
            else:
                self._pipe.send(await self._steady(amount))
        await self._bus.close()

    async def _flood(self, rounds: int) -> tuple[float, int, dict[tuple[str, int], float]]:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for first in range(min(AT_ONCE, self._nodes)):
                group.create_task(self._some(range(first, self._nodes, AT_ONCE), rounds))
        self._minutes += rounds
        return time.monotonic() - began, self._bytes, {}

    async def _some(self, numbers: range, rounds: int) -> None:
        for minute in range(self._minutes, self._minutes + rounds):
            for number in numbers:
                await self._tell(number, self._began_ns + minute * INTERVAL_S * SECOND)

    async def _steady(self, seconds: float) -> tuple[float, int, dict[tuple[str, int], float]]:
        sent: dict[tuple[str, int], float] = {}
        pause_s = INTERVAL_S / self._nodes
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for turn in range(int(seconds / pause_s)):
                await asyncio.sleep(max(0.0, began + turn * pause_s - time.monotonic()))
                at_ns, number = time.time_ns(), turn % self._nodes
                sent[_node(number), at_ns] = time.monotonic()
                group.create_task(self._tell(number, at_ns))
        return time.monotonic() - began, self._bytes, sent

    async def _tell(self, number: int, at_ns: int) -> None:
        report = self._reports[number].next(at_ns)
        data = encode(report)
        self._bytes = len(data)
        said = answer.decode(
            await self._bus.ask(subjects.subject(report.node, subjects.REPORT), data, deadline_s=ANSWERED_S)
        )
        if not said.accepted:
            raise KoordError(said.refused)


class _Reports:
    """The reports of one node: a minute of samples each second, and its pods' sums."""

    def __init__(self, number: int, pods: int) -> None:
        self._number = number
        self._node = _node(number)
        self._seqs = iter(range(1, sys.maxsize))
        self._series = self._of(INTERVAL_S)
        self._pods = tuple(
            PodSum(_uid(number, pod), 60 * (50_000 + pod * 997), 60, 50_000, 60 * (pod + 64) * MIB, 60, MIB)
            for pod in range(pods)
        )

    def next(self, at_ns: int) -> Report:
        """The report of the minute that ends at an instant; the first is longer."""
        seq = next(self._seqs)
        seconds, series = (LONG_S, self._of(LONG_S)) if seq == 1 else (INTERVAL_S, self._series)
        node, system, best_effort = series
        return Report(
            node=self._node,
            boot="bench",
            seq=seq,
            at_ns=at_ns,
            interval_ns=seconds * SECOND,
            node_usage=node,
            system_usage=system,
            best_effort_usage=best_effort,
            pods=self._pods,
        )

    def _of(self, seconds: int) -> tuple[Series, ...]:
        """A sample each second, of the node, of the system, of best effort."""
        offsets = tuple(range(1_000, seconds * 1_000 + 1, 1_000))
        return tuple(
            Series(
                offsets,
                tuple(_wave(self._number + shift, scale, seconds)),
                tuple(_wave(self._number + shift, scale * 1_000, seconds)),
            )
            for shift, scale in ((0, 8_000_000), (17, 1_000_000), (31, 3_000_000))
        )


def _wave(seed: int, scale: int, seconds: int) -> Iterator[int]:
    """Some samples around `scale`."""
    return (scale + (seed * 7_919 + second * 104_729) % scale for second in range(seconds))
