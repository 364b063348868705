"""Services are killed with SIGKILL while pods are created on a real API server: no pod is lost and none is bound twice.

The short form kills at a few seeded moments, the long one (`make soak`) at fifty. A moment is a count of pods that were
created or bound, so that on any machine some have no node yet. Failpoints end a service again and again between a
response, a commit and an announcement.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from cli.bench.e2e_on_kube_apiserver import KubeSide
from cli.bench.e2e_pod_latency import Timeline
from cli.dev.fake_nodes import create_nodes, delete_nodes, node_object
from cli.dev.local_control_plane import Cluster
from tests.chaos.ledger import check
from tests.support.kube_system import running

PODS = 300
NODES = 40
WITHIN_S = 240
LAST_STEP = PODS + PODS // 2
"""Last step of a kill; steps are the creation and the binding of each pod. Up to it at least a quarter of the pods has
no node yet.
"""

FAILPOINTS = [
    ("gateway", "gateway.after-api-answer:120"),
    ("gateway", "gateway.before-append:20"),
    ("gateway", "gateway.after-commit:20"),
    ("gateway", "log.before-commit:20"),
    ("gateway", "log.after-commit-before-announce:20"),
    ("scheduler", "log.before-commit:3"),
    ("scheduler", "log.after-commit-before-announce:3"),
]

_numbers = itertools.count()


@pytest.fixture
async def nodes(kube_cluster: Cluster) -> AsyncIterator[None]:
    made = await asyncio.to_thread(create_nodes, kube_cluster.api, [node_object(f"chaos-{n}") for n in range(NODES)])
    yield
    await asyncio.to_thread(delete_nodes, kube_cluster.api, made)


class Strike(Timeline):
    """An action that runs once, at a step: the number of pods seen created plus those seen bound."""

    def __init__(self, step: int, strike: Callable[[], None]) -> None:
        super().__init__(PODS)
        self._left = step
        self._strike = strike

    def created(self, name: str) -> None:
        super().created(name)
        self._count()

    def bound(self, name: str) -> None:
        again = name in self._bound
        super().bound(name)
        if not again:
            self._count()

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._strike()


async def create_and_wait(cluster: Cluster, namespace: str, timeline: Timeline) -> set[str]:
    """Creates the pods, and waits until the API shows all of them bound."""
    prefix = f"chaos-{next(_numbers)}"
    names = [f"{prefix}-{number}" for number in range(PODS)]
    async with KubeSide(cluster.url, cluster.api.tls, namespace, "koord-scheduler") as side:
        async with asyncio.timeout(WITHIN_S):
            await side.run(names, timeline)
    return set(names)


def bound_of(cluster: Cluster, namespace: str) -> int:
    """Returns the number of pods that have a node."""
    pods = cluster.api.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods)


async def clear(cluster: Cluster, namespace: str, names: set[str]) -> None:
    """Deletes the pods, so that the next ones fit."""
    async with KubeSide(cluster.url, cluster.api.tls, namespace, "koord-scheduler") as side:
        await side.clear(sorted(names))


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(4), id="short"), pytest.param(range(100, 150), id="long", marks=pytest.mark.soak)],
)
@pytest.mark.usefixtures("nodes")
@pytest.mark.timeout(1800)
async def test_a_killed_service_loses_no_pod_and_binds_none_twice(
    kube_cluster: Cluster, namespace: str, tmp_path: Path, seeds: range
) -> None:
    async with running(kube_cluster, tmp_path) as system:
        for seed in seeds:
            chance = random.Random(seed)
            victim, step = chance.choice(("gateway", "scheduler")), chance.randrange(1, LAST_STEP)
            bound_then: list[int] = []

            def kill(victim: str = victim, bound_then: list[int] = bound_then) -> None:
                system.supervisor.kill(victim)
                bound_then.append(bound_of(kube_cluster, namespace))

            expected = await create_and_wait(kube_cluster, namespace, Strike(step, kill))
            assert len(bound_then) == 1
            assert bound_then[0] < PODS, f"{victim} was killed at step {step}, when every pod had a node"
            await system.supervisor.wait_leading(240)
            await check(kube_cluster, namespace, system.endpoints.postgres, expected)
            await clear(kube_cluster, namespace, expected)
        assert sum(unit.restarts for unit in system.supervisor.units.values()) >= len(seeds)


@pytest.mark.parametrize(("service", "failpoint"), FAILPOINTS, ids=[f"{name}:{point}" for name, point in FAILPOINTS])
@pytest.mark.usefixtures("nodes")
async def test_a_service_that_ends_between_response_commit_and_announcement_loses_nothing(
    kube_cluster: Cluster, namespace: str, tmp_path: Path, service: str, failpoint: str
) -> None:
    async with running(kube_cluster, tmp_path, {service: {"KOORD_FAILPOINT": failpoint}}) as system:
        expected = await create_and_wait(kube_cluster, namespace, Timeline(PODS))
        assert system.supervisor.units[service].restarts > 0, "the failpoint was never reached"
        await check(kube_cluster, namespace, system.endpoints.postgres, expected)
