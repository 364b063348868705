"""`koord bench quota --servers`: what a scheduling cycle waits for: charges by the ledger as a process, through NATS
and Postgres.

One client, one cycle after the other, as the scheduler requests. Ledger, client and both servers are processes of their
own on this machine.
"""

import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from cli.bench.log import Servers, note
from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.processes.child_process import Process
from cli.service_list import contexts
from shared.bus import Bus, NoResponse
from shared.domain.quota_charge import SUBJECT, ChargeRequest, ChargeResponse, decode_response, encode
from shared.errors import KoordError
from shared.events import Draft, Event
from shared.events.cluster import NodeObserved, ObjectObserved, PodObserved
from shared.kube.elastic_quota import QUOTA_NAME, RESOURCES
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Container, Pod, PodSpec, ResourceRequirements
from shared.log.database import Database
from shared.log.migration import migrate
from shared.log.writer import LogWriter

CHUNK = 1_000
CHARGE_DEADLINE_S = 4.0
DEADLINE_S = 120.0


class ChargingFigures(msgspec.Struct, frozen=True):
    """Figures of `--json`.

    Attributes:
        charges_per_s: pods charged a second: requested over NATS, committed in Postgres, answered.
        charge_ms_p50, charge_ms_p99: how long one cycle waits for its pods' charges.
        batch: pods of a cycle.
        attached_per_s: pods booked a second as they were observed, from the append of the first to the first answer.
    """

    quotas: int
    pods: int
    batch: int
    charges_per_s: float
    charge_ms_p50: float
    charge_ms_p99: float
    attached_per_s: float
    load_1m: float


async def measure(folder: Path, quotas: int, pods: int, batch: int) -> ChargingFigures:
    """Observe quotas and pods, then charge all pods, round after round.

    Raises:
        KoordError: a pod was not charged: what was measured is worth nothing.
    """
    load_1m = os.getloadavg()[0]
    async with EmbeddedPostgres(folder / "postgres") as postgres, EmbeddedNats(folder / "nats") as nats:
        servers = Servers(postgres.url, nats.url)
        database = Database(servers.postgres)
        await migrate(database, contexts())
        bus = Bus(servers.nats, name="bench")
        await bus.start()
        try:
            async with (
                _writing(database, bus, "cluster") as cluster,
                _writing(database, bus, "scheduling") as scheduling,
            ):
                with _ledger(folder, servers):
                    note(f"observing {quotas:,} quotas and {pods:,} pods")
                    started = time.perf_counter()
                    await _observe(cluster, quotas, pods)
                    seen = {"cluster": cluster.head.seq, "scheduling": scheduling.head.seq}
                    await _request_charge(bus, ChargeRequest(epoch=scheduling.epoch, cycle=1, seen=seen, groups=()))
                    attached_s = time.perf_counter() - started
                    note("charging them")
                    took_ms, charging_s = await _charge(bus, scheduling.epoch, seen, pods, batch)
        finally:
            await bus.close()
            await database.close()
    took_ms.sort()
    return ChargingFigures(
        quotas=quotas,
        pods=pods,
        batch=batch,
        charges_per_s=round(pods / charging_s),
        charge_ms_p50=round(took_ms[len(took_ms) // 2], 2),
        charge_ms_p99=round(took_ms[int(len(took_ms) * 0.99)], 2),
        attached_per_s=round(pods / attached_s),
        load_1m=load_1m,
    )


async def _charge(bus: Bus, epoch: int, seen: dict[str, int], pods: int, batch: int) -> tuple[list[float], float]:
    took_ms: list[float] = []
    began = time.perf_counter()
    for number, start in enumerate(range(0, pods, batch), 2):
        groups = tuple((f"p{uid}",) for uid in range(start, min(start + batch, pods)))
        sent = time.perf_counter()
        answer = await _request_charge(bus, ChargeRequest(epoch=epoch, cycle=number, seen=seen, groups=groups))
        took_ms.append((time.perf_counter() - sent) * 1e3)
        if len(answer.charged) != len(groups):
            raise KoordError(f"round {number}: {len(groups) - len(answer.charged)} pods were not charged")
    return took_ms, time.perf_counter() - began


async def _request_charge(bus: Bus, charge_request: ChargeRequest) -> ChargeResponse:
    """Repeats the request until it is answered: a ledger that has much to read drops old requests."""
    ends = time.monotonic() + DEADLINE_S
    while True:
        try:
            return decode_response(await bus.request(SUBJECT, encode(charge_request), deadline_s=CHARGE_DEADLINE_S))
        except NoResponse:
            if time.monotonic() > ends:
                raise


async def _observe(cluster: LogWriter, quotas: int, pods: int) -> None:
    status = NodeStatus(allocatable={"cpu": str(pods), "memory": f"{pods}Gi"})
    events: list[Event] = [NodeObserved(node="n1", object=Node(metadata=Metadata(name="n1"), status=status))]
    events += [_quota(f"q{number}", pods) for number in range(quotas)]
    events += [_pod(f"p{number}", f"q{number % quotas}") for number in range(pods)]
    for start in range(0, len(events), CHUNK):
        drafts = [Draft(event) for event in events[start : start + CHUNK]]
        await cluster.append(drafts, now_ns=time.time_ns(), seen={})


def _quota(name: str, pods: int) -> ObjectObserved:
    size = {"cpu": str(pods), "memory": f"{pods}Gi"}
    raw = {"metadata": {"name": name, "namespace": "bench", "uid": name}, "spec": {"max": size}}
    return ObjectObserved(resource=RESOURCES[0], name=f"bench/{name}", uid=name, object=raw)


def _pod(name: str, quota: str) -> PodObserved:
    amounts = ResourceRequirements(requests={"cpu": "500m", "memory": "512Mi"})
    metadata = Metadata(name=name, namespace="bench", uid=name, labels={QUOTA_NAME: quota})
    body = Pod(metadata=metadata, spec=PodSpec(containers=(Container(resources=amounts),)))
    return PodObserved(pod=f"bench/{name}", pod_uid=name, object=body)


@asynccontextmanager
async def _writing(database: Database, bus: Bus, context: str) -> AsyncIterator[LogWriter]:
    writer = LogWriter(database, bus, context, f"bench {context}")
    await writer.acquire()
    await writer.begin("0", (), now_ns=time.time_ns(), seen={})
    try:
        yield writer
    finally:
        await writer.close()


@contextlib.contextmanager
def _ledger(folder: Path, servers: Servers) -> Iterator[Process]:
    env = {**os.environ, "KOORD_POSTGRES": servers.postgres, "KOORD_NATS": servers.nats}
    process = Process("ledger", [sys.executable, "-m", "cli", "run", "quota-ledger"], folder / "ledger.log", env=env)
    process.start()
    try:
        yield process
    finally:
        process.stop()
