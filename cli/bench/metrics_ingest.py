"""`koord bench ingest`: cost of a fleet's reports for metrics ingest, from an agent's request to a follower of the log.

A pod sample is one pod in one report. Reports are made and sent by a process of their own, as requests over NATS; each
is answered after the commit of its NodeReported. Nodes and pods are in the log before.
"""

import asyncio
import math
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

import click
import msgspec
import uvloop

from cli.bench.process_costs import Servers, peak_bytes, reply
from cli.bench.report_senders import ANSWERED_S, INTERVAL_S, MIB, node_name, pod_uid, reports_due, send
from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.processes.child_process import Process
from cli.service_list import contexts
from cli.terminal.output import show_table
from shared.bus import Bus
from shared.errors import KoordError
from shared.events import Draft, RecordedEvent
from shared.events.cluster import NodeMetricObserved, NodeObserved, PodObserved
from shared.events.metrics import NodeReported
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Pod, PodSpec, PodStatus
from shared.log.database import Database
from shared.log.follower import Follower
from shared.log.migration import migrate
from shared.log.reader import LogReader
from shared.log.writer import LogWriter

FILLING = 3
"""Reports of each node before anything is measured."""
MEASURED = 10_000
"""Reports that are then sent as fast as they are answered, or a little more: whole turns of all nodes."""
MOST_ROUNDS = 20
"""More minutes would not lie within the windows."""


class IngestFigures(msgspec.Struct, frozen=True):
    """The figures that `--json` prints.

    Attributes:
        pod_samples_per_s: accepted and recorded, when reports come as fast as they are answered.
        pod_samples_per_core_s: the same for each second of cpu of the three processes.
        cores_used: cpu of ingest, Postgres and NATS (children counted) for a report of each node once a minute, in
            cores.
        ingest_cores, postgres_cores, nats_cores: the part of each of them.
        lag_p50_s, lag_p99_s: at that rate, from sending a report until a follower in another process has its
            NodeReported.
        rss_mib: largest resident memory of ingest.
        report_bytes, event_bytes: mean size of a report as sent, and of a NodeReported.
        stored_bytes: what a NodeReported takes in Postgres, with its row, its indexes and its digest.
        gib_per_day_10k: size of a day's events of 10,000 such nodes in `metrics-*`.
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
    stored_bytes: int
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
    """Measure the cost of a fleet's reports for metrics ingest.

    First throughput, then cpu, memory and lag at one report a minute and node.

    Ingest, the sender of reports, Postgres and NATS are processes of their own on this machine.
    """
    if not reports_due(nodes, seconds):
        raise click.UsageError(
            f"no report is due in {seconds:g} s of {nodes} node{'' if nodes == 1 else 's'} that report every {INTERVAL_S} s; "
            f"give at least --seconds {math.ceil(INTERVAL_S / nodes)}"
            + (f" or --nodes {math.ceil(INTERVAL_S / seconds)}" if seconds > 0 else "")
        )
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


async def _driven(servers: Servers, bus: Bus, nodes: int, pods: int, seconds: float, load_1m: float) -> IngestFigures:
    fold_times, process = _FoldTimes(), servers.service
    rounds = min(-(-MEASURED // nodes), MOST_ROUNDS)
    reader = LogReader(Database(servers.postgres.url))
    follower = Follower("bench", reader, bus, {"metrics-0": (NodeReported,)}, lambda: fold_times, own=None)
    await follower.start()
    pipe, theirs = multiprocessing.get_context("spawn").Pipe()
    sender = multiprocessing.get_context("spawn").Process(
        target=send, args=(theirs, servers.nats.url, nodes, pods, FILLING + rounds), daemon=True
    )
    sender.start()
    click.echo(f"{FILLING} reports of each node, to fill windows", err=True)
    await reply(pipe, ("flood", FILLING))
    click.echo(f"{rounds} reports of each node, as fast as they are answered", err=True)
    before = servers.cpu_s()
    flood_s, report_bytes, _ = await reply(pipe, ("flood", rounds))
    cpu_s = sum(servers.cpu_s()) - sum(before)
    click.echo(f"a report of each node every {INTERVAL_S} s, for {seconds:g} s", err=True)
    fold_times.begin()
    before = servers.cpu_s()
    _, _, sent = await reply(pipe, ("steady", seconds))
    async with asyncio.timeout(ANSWERED_S):
        while not sent.keys() <= fold_times.lags_of.keys():
            await asyncio.sleep(0.05)
    # Until the last report is recorded: on a shared machine that is later, and the deferred work is counted as well.
    cores = [round((now - then) / seconds, 3) for now, then in zip(servers.cpu_s(), before, strict=True)]
    pipe.send(None)
    await follower.stop()
    stored_bytes = await _stored_bytes(reader.database)
    await reader.database.close()
    lags = sorted(fold_times.lags_of[which] - at for which, at in sent.items())
    event_bytes = fold_times.mean_bytes()
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
        rss_mib=peak_bytes(process) // MIB,
        report_bytes=report_bytes,
        event_bytes=event_bytes,
        stored_bytes=stored_bytes,
        gib_per_day_10k=round(10_000 * 1_440 * event_bytes / 2**30, 1),
        nodes=nodes,
        pods_per_node=pods,
        seconds=seconds,
        load_1m=load_1m,
    )


class _FoldTimes:
    """A State that records when it folded which report, and the size of events."""

    SCHEMA: ClassVar[int] = 1

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.lags_of: dict[tuple[str, int], float] = {}  # (node, at_ns) -> when it was folded
        self._sizes: list[int] = []

    def apply(self, record: RecordedEvent) -> None:
        event = record.event
        if isinstance(event, NodeReported):
            self.lags_of[event.node, event.at_ns] = time.monotonic()
            if record.seq % 7 == 0:
                self._sizes.append(len(msgspec.json.encode(event)))
        self.positions[record.context] = record.seq

    def begin(self) -> None:
        """Drops earlier records."""
        self.lags_of = {}
        self._sizes = []

    def mean_bytes(self) -> int:
        """Returns the mean size of an event."""
        return sum(self._sizes) // max(1, len(self._sizes))

    def encode(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None:  # noqa: ARG002
        raise KoordError("a bench begins anew")


async def _stored_bytes(database: Database) -> int:
    """Returns the mean size of an event of `metrics-0` in its tables and their indexes."""
    sql = "select sum(pg_total_relation_size(relid)) from pg_partition_tree('events_metrics_0') where isleaf"
    async with database.reading() as connection:
        count = await connection.fetchval("select count(*) from events where context = 'metrics-0'")
        return int(await connection.fetchval(sql)) // int(count)


async def _observe(database: Database, bus: Bus, nodes: int, pods: int) -> None:
    writer = LogWriter(database, bus, "cluster", "bench")
    await writer.acquire()
    await writer.begin("bench", (), now_ns=time.time_ns(), seen={})
    drafts: list[Draft] = []
    for number in range(nodes):
        node = node_name(number)
        drafts.append(Draft(NodeObserved(node=node, object=Node(metadata=Metadata(name=node)))))
        drafts.append(Draft(NodeMetricObserved(node=node, object=NodeMetric(metadata=Metadata(name=node)))))
        for pod in range(pods):
            uid = pod_uid(number, pod)
            metadata = Metadata(name=f"service-{pod:03}-7d9f8b6c5d-{number:05}", namespace="production", uid=uid)
            status = PodStatus(phase="Running", qos_class="BestEffort" if pod % 3 == 0 else "Burstable")
            held = Pod(metadata=metadata, spec=PodSpec(node_name=node), status=status)
            drafts.append(Draft(PodObserved(pod=metadata.key, pod_uid=uid, object=held)))
        if len(drafts) > 1_000:
            await writer.append(drafts, now_ns=time.time_ns(), seen={})
            drafts = []
    await writer.append(drafts, now_ns=time.time_ns(), seen={})
    await writer.close()
