"""Overcommitment continues while its services and the bus are killed: amounts follow reports with a delay.

An agent reports a varying load; the node's batch-cpu follows, on a real API server. Meanwhile ingest, the controller,
the gateway and NATS are killed with SIGKILL, one after the other. The short form kills each once, the long one (`make
soak`) forty times in a seeded order.
"""

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from cli.credentials.credentials_folder import env_file, read_env
from cli.dev.kube_client import ApiRefused
from cli.dev.local_control_plane import Cluster
from services.slo_controller.overcommit.explain import explain
from shared.agents import receipt, subjects
from shared.agents.report import encode
from shared.bus import Bus, NoResponse
from shared.events.slo import NodeOvercommitted
from shared.kube.instants import SECOND
from shared.log.admin.verify import verify
from tests.cluster.fixtures import MakeNodes
from tests.support.ingest_process import report
from tests.support.kube_system import System, beside, kill_and_restart, running
from tests.support.overcommit_objects import BATCH_CPU, CONFIG_MAPS, SLO, batch_pod
from tests.support.waiting import in_thread, until

NODE = "swings"
VICTIMS = ("metrics-ingest", "slo-controller", "gateway", "nats")
MIN_CORES, MAX_CORES = 4.0, 16.0
"""Cores in use on the node, half of them outside of pods."""
SELLABLE = 32_000 * 60 // 100
"""Of 32 cores, by the default percentage; usage outside of pods is subtracted."""
BUSY, IDLE = SELLABLE - MAX_CORES * 1000 / 2, SELLABLE - MIN_CORES * 1000 / 2
"""Batch-cpu while the node is busy, and while it is idle."""
INTERVAL_S = 0.5

COLOCATION = {
    "enable": True,
    "metricReportIntervalSeconds": 1,
    "metricAggregateDurationSeconds": 4,  # as long as the load stays the same, so that the amount moves all the way
    "updateTimeThresholdSeconds": 1,
    "resourceDiffThreshold": 0.001,  # each changed report shows on the node
    "degradeTimeMinutes": 2,
}
SETTINGS = {
    "metrics-ingest": {"KOORD_METRICS_INGEST_MIN_INTERVAL_S": "1", "KOORD_SNAPSHOT_INTERVAL_S": "1"},
    "slo-controller": {"KOORD_SLO_CONTROLLER_POLL_INTERVAL_S": "0.5", "KOORD_SNAPSHOT_INTERVAL_S": "1"},
}


class Agent:
    """Reports every half second, and keeps messages until they are accepted, as the real agent does."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._seqs = itertools.count(1)

    async def run(self) -> None:
        waiting: list[bytes] = []
        while True:
            seq = next(self._seqs)
            cores = MIN_CORES if seq // 8 % 2 else MAX_CORES
            waiting.append(encode(report(NODE, seq, boot="swing", cores=cores, seconds=4)))
            with contextlib.suppress(NoResponse):
                while waiting:
                    response = receipt.decode(
                        await self._bus.request(subjects.subject(NODE, subjects.REPORT), waiting[0], deadline_s=3)
                    )
                    assert response.accepted, response.refused
                    del waiting[0]
            await asyncio.sleep(INTERVAL_S)


class Watch:
    """The batch-cpu of the node on the API, over time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.seen: list[int | None] = []

    def batch_cpu(self) -> int | None:
        text = self._cluster.api.call("GET", f"/api/v1/nodes/{NODE}")["status"]["allocatable"].get(BATCH_CPU)
        return None if text is None else int(text[:-1]) * 1000 if text.endswith("k") else int(text)

    async def run(self) -> None:
        while True:
            self.seen.append(await asyncio.to_thread(self.batch_cpu))
            await asyncio.sleep(0.2)


async def decisions(system: System) -> list[NodeOvercommitted]:
    rows = [row async for row in system.log.rows(context="slo", kind="NodeOvercommitted", key=NODE)]
    return [msgspec.json.decode(row.data, type=NodeOvercommitted) for row in rows]


def shuffled(seed: int, count: int) -> Iterator[str]:
    chance = random.Random(seed)
    return (chance.choice(VICTIMS) for _ in range(count))


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(VICTIMS, id="short"),
        pytest.param(tuple(shuffled(7, 40)), id="long", marks=pytest.mark.soak),
    ],
)
@pytest.mark.timeout(1800)
async def test_amounts_follow_the_load_and_pods_are_bound_whichever_process_is_killed(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path, victims: Sequence[str]
) -> None:
    api, watch = kube_cluster.api, Watch(kube_cluster)
    kube_nodes(NODE, capacity={"cpu": "32", "memory": "64Gi"})
    metadata = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    body = {"metadata": metadata, "data": {"colocation-config": json.dumps(COLOCATION)}}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    try:
        async with running(
            kube_cluster, tmp_path, SETTINGS, more=["slo-controller", "metrics-ingest"], nodes=[NODE]
        ) as system:
            api.call("POST", CONFIG_MAPS, body)
            login = read_env(env_file(Path(system.endpoints.credentials), subjects.token(NODE), node=True))
            bus = Bus(login["KOORD_NATS"], name="agent")
            await bus.start()
            async with beside(Agent(bus).run()):
                await until(in_thread(watch.batch_cpu))
                async with beside(watch.run()):
                    for number, victim in enumerate(victims):
                        killed_ns = time.time_ns()
                        await kill_and_restart(system, victim)
                        await asyncio.to_thread(api.call, "POST", pods, batch_pod(f"work-{number}"))
                        await until(partial(bound, kube_cluster, f"{pods}/work-{number}"))
                        await until(partial(follows, system, watch, killed_ns))
                        await swings(watch)
                        await asyncio.to_thread(api.call, "DELETE", f"{pods}/work-{number}", {"gracePeriodSeconds": 0})
            await bus.close()
            await what_was_seen_is_in_order(system, watch)
    finally:
        for path in (f"{CONFIG_MAPS}/slo-controller-config", f"{SLO}/nodemetrics/{NODE}", f"{SLO}/nodeslos/{NODE}"):
            with contextlib.suppress(ApiRefused):
                api.call("DELETE", path)


async def bound(cluster: Cluster, path: str) -> bool:
    return bool((await asyncio.to_thread(cluster.api.call, "GET", path))["spec"].get("nodeName"))


async def follows(system: System, watch: Watch, since_ns: int) -> bool:
    """Reports whether a later report has led to a decision, and the node has its amount."""
    decided = (await decisions(system))[-1]
    if decided.report_ns < since_ns + SECOND or decided.batch_cpu is None:
        return False
    return await asyncio.to_thread(watch.batch_cpu) == decided.batch_cpu.amount


async def swings(watch: Watch) -> None:
    """Waits until the node was observed with low and with high batch-cpu, from now on."""
    since, middle = len(watch.seen), (BUSY + IDLE) / 2

    async def both() -> bool:
        return len({size > middle for size in watch.seen[since:] if size is not None}) == 2

    await until(both)


async def what_was_seen_is_in_order(system: System, watch: Watch) -> None:
    assert all(size is not None and BUSY <= size <= IDLE for size in watch.seen), (
        "never absent, never outside of the range"
    )
    decided = await decisions(system)
    assert {each.why for each in decided} <= {"first", "changed", "time"}, "never degraded, never off"
    assert all(part.adds_up for each in decided for part in explain(each))
    reports = [each.report_ns for each in decided]
    assert reports == sorted(reports), "no older report after a newer one"
    amounts = [each.amounts for each in decided]
    assert all(before != after for before, after in itertools.pairwise(amounts)), "no amount was decided twice"
    for context in ("cluster", "metrics-0", "slo", "scheduling"):
        verified = await verify(system.log, context)
        assert verified.ok, verified
