"""Services are killed with -9 while pods come in on a real API server: no pod is lost and none is bound twice.

The short form kills at a few seeded moments, the long one (`make soak`) at fifty. Failpoints end a service again and again at
the places where an answer, a commit and an announcement can come apart.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.bench.on_kube import KubeSide
from cli.bench.timeline import Timeline
from cli.dev.cluster import Cluster
from cli.dev.nodes import create_nodes, delete_nodes, node_object
from tests.chaos.ledger import check
from tests.support.kube_system import running

PODS = 300
NODES = 40
WITHIN_S = 120
SPREAD_S = 2.5
"""Creating the pods takes about a second; bindings go on after that."""

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


async def create_and_wait(cluster: Cluster, namespace: str, *tasks: "asyncio.Task[None]") -> set[str]:
    """Create the pods while the tasks do what they do; return when the API shows all pods bound."""
    prefix = f"chaos-{next(_numbers)}"
    names = [f"{prefix}-{number}" for number in range(PODS)]
    timeline = Timeline(PODS)
    async with KubeSide(cluster.url, cluster.api.tls, namespace, "koord-scheduler") as side:
        async with asyncio.timeout(WITHIN_S):
            await side.run(names, timeline)
    await asyncio.gather(*tasks)
    return set(names)


async def clear(cluster: Cluster, namespace: str, names: set[str]) -> None:
    """Delete the pods, so that the next ones find room."""
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
            victim, after_s = chance.choice(("gateway", "scheduler")), chance.uniform(0, SPREAD_S)

            async def kill(victim: str = victim, after_s: float = after_s) -> None:
                await asyncio.sleep(after_s)
                system.supervisor.kill(victim)

            expected = await create_and_wait(kube_cluster, namespace, asyncio.create_task(kill()))
            await system.supervisor.wait_leading(60)
            await check(kube_cluster, namespace, system.endpoints.postgres, expected)
            await clear(kube_cluster, namespace, expected)
        assert sum(unit.restarts for unit in system.supervisor.units.values()) >= len(seeds)


@pytest.mark.parametrize(("service", "failpoint"), FAILPOINTS, ids=[f"{name}:{point}" for name, point in FAILPOINTS])
@pytest.mark.usefixtures("nodes")
async def test_a_service_that_ends_between_answer_commit_and_announcement_loses_nothing(
    kube_cluster: Cluster, namespace: str, tmp_path: Path, service: str, failpoint: str
) -> None:
    async with running(kube_cluster, tmp_path, {service: {"KOORD_FAILPOINT": failpoint}}) as system:
        expected = await create_and_wait(kube_cluster, namespace)
        assert system.supervisor.units[service].restarts > 0, "the failpoint was never reached"
        await check(kube_cluster, namespace, system.endpoints.postgres, expected)
