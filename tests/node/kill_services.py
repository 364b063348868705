"""Kills services, the agent and NATS beside suppressed batch pods, and records the effects that a user sees."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from cli.dev.kube_client import ApiRefused
from tests.node.koordstream_on_node import Site
from tests.node.latency_experiment import COLOCATED, HELD, THRESHOLD, Service
from tests.node.pod_bodies import pod
from tests.support.kube_system import beside, kill_and_restart
from tests.support.waiting import until

VICTIMS = ("metrics-ingest", "slo-controller", "node-agent", "gateway", "nats")
BATCH_CPU = "kubernetes.io/batch-cpu"
SLO = "/apis/slo.koordinator.sh/v1alpha1"
POLL_INTERVAL_S = 0.1
PERIOD_US = 100_000
STARTED_WITHIN_S = 900.0


class Observation(NamedTuple):
    """One observation.

    Attributes:
        quota_us: cpu that best effort may use of each 100 ms; -1: everything.
        batch_cpu: batch-cpu of the node; None: it has none.
    """

    quota_us: int
    batch_cpu: str | None


class Watch:
    """Observes the node while best effort is suppressed."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.seen: list[Observation] = []

    async def run(self) -> None:
        """Observes until cancelled."""
        while True:
            status = await asyncio.to_thread(self._service.there.node.status)
            self.seen.append(Observation(self._service.quota_us(), status["allocatable"].get(BATCH_CPU)))
            await asyncio.sleep(POLL_INTERVAL_S)

    def check(self) -> None:
        """Checks that best effort was suppressed and the node had batch resources in every observation."""
        cpus = int(self._service.there.node.status()["capacity"]["cpu"])
        most = cpus * PERIOD_US * THRESHOLD // 100
        assert self.seen
        assert all(0 < observation.quota_us <= most for observation in self.seen), {
            observation.quota_us for observation in self.seen
        }
        assert all(observation.batch_cpu is not None for observation in self.seen), "batch resources were gone"


@contextlib.asynccontextmanager
async def watched(service: Service) -> AsyncIterator[None]:
    """Observes the node meanwhile.

    Checks at the end the observations, and that the burners are the same ones as before.
    """
    before = await _burners(service)
    watch = Watch(service)
    async with beside(watch.run()):
        yield
    watch.check()
    assert await _burners(service) == before


async def _burners(service: Service) -> list[tuple[str, str, str, int]]:
    pods = await service.there.call("GET", f"/api/v1/namespaces/{service.namespace}/pods")
    return [
        (each["metadata"]["name"], each["metadata"]["uid"], each["status"]["phase"], status["restartCount"])
        for each in pods["items"]
        if each["metadata"]["name"].startswith("burner-")
        for status in each["status"]["containerStatuses"]
    ]


async def kill_at_random(there: Site, seed: int, count: int, within_s: float) -> None:
    """Kills so many services, drawn at random and spread over the time; one may die again before it is back."""
    chance = random.Random(seed)
    moments = sorted(chance.uniform(0, within_s) for _ in range(count))
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for moment in moments:
        await asyncio.sleep(max(begun + moment - loop.time(), 0))
        await kill_and_restart(there.system, chance.choice(VICTIMS))


async def kill_in_turn(service: Service, victims: Sequence[str]) -> None:
    """Kills one after the other, each when the system has recovered from the last."""
    for number, victim in enumerate(victims):
        killed = datetime.now(UTC)
        await kill_and_restart(service.there.system, victim)
        await check_recovery(service, killed, f"after-{number}", THRESHOLD - number % 2)


async def check_recovery(service: Service, since: datetime, name: str, threshold: int) -> None:
    """Waits for a later report on the API, a new setting on the node, and a new batch pod that is bound and limited.

    Its container may take minutes to start: all of best effort has 2 ms of each 100, and others burn.

    Args:
        threshold: the setting, another one than before.
    """
    there = service.there

    async def reported() -> bool:
        metric = await there.get(f"{SLO}/nodemetrics/{there.node.name}")
        return metric is not None and datetime.fromisoformat(metric["status"]["updateTime"]) > since

    await until(reported, f"report since {since}")
    strategy = {**HELD, "cpuSuppressThresholdPercent": threshold}
    await accepted(there.configure, resource_threshold_config={"clusterStrategy": strategy})

    async def slo_updated() -> bool:
        slo = await there.call("GET", f"{SLO}/nodeslos/{there.node.name}")
        found: int = slo["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"]
        return found == threshold

    await until(slo_updated, f"threshold {threshold}")
    body = pod(name, requests={"cpu": "250m", "memory": "32Mi"}, labels=COLOCATED)
    uid = (await accepted(there.created, service.namespace, body))["metadata"]["uid"]

    async def held() -> bool:
        cgroup = there.node.tree.of_pod(uid)
        return cgroup is not None and (cgroup / "cpu.shares").read_text() == "256\n"

    await until(held, "shares of the new pod", within_s=STARTED_WITHIN_S)
    await there.call("DELETE", f"/api/v1/namespaces/{service.namespace}/pods/{name}")


async def accepted(call: Any, *arguments: Any, **named: Any) -> Any:
    """Returns the API's response, once it accepts the object: without its webhooks it responds with 500."""

    async def attempt() -> Any:
        try:
            return (await call(*arguments, **named),)
        except ApiRefused as refused:
            if refused.status != 500:
                raise
            return None

    return (await until(attempt, "answer of the webhooks"))[0]
