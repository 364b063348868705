"""Hot nodes and drains on a real API server with the real controllers: with the guide's thresholds all hot nodes fall
below them within the expected moves, nodes are drained together, and no workload has fewer available pods than its
disruption budget keeps, while gateway, scheduler and descheduler are killed. `make soak` runs the long form.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import msgspec
import pytest
import yaml

from cli.dev.fake_kubelet import FakeKubelets
from cli.dev.local_control_plane import Cluster
from shared.events.cluster import PodEvicted
from shared.events.descheduling import EvictionCaseOpened
from shared.events.migration import MigrationEvictionDecided
from tests.cluster.fixtures import StartCluster
from tests.e2e.hot_fleet import AVAILABLE, CORES, PODS_PER_NODE, SYSTEM_MILLI, USED_MILLI, Available, Fleet
from tests.support.kube_system import WITHOUT_EVICTION_BUDGETS, System, beside, koord, running
from tests.support.waiting import in_thread, until

KILLED = ("gateway", "scheduler", "descheduler")
CONFIG_MAPS = "/api/v1/namespaces/koordinator-system/configmaps"
NAME = "koord-descheduler-config"

GUIDE = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerConfiguration",
    "deschedulingInterval": "3s",  # a minute in the guide
    "profiles": [
        {
            "name": "koord-descheduler",
            "plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}},
            "pluginConfig": [
                {
                    "name": "LowNodeLoad",
                    "args": {
                        "lowThresholds": {"cpu": 20, "memory": 30},
                        "highThresholds": {"cpu": 50, "memory": 60},
                        "evictableNamespaces": {"exclude": ["kube-system", "koordinator-system"]},
                    },
                },
                {
                    "name": "MigrationController",
                    "args": {"objectLimiters": {"workload": {"duration": "0s"}}, "defaultJobTTL": "60s"},
                },
            ],
        }
    ],
}
"""The published guide's DeschedulerConfiguration, but for the limit of two pods of a workload in five minutes, which has
tests of its own (how many move at once stays limited), and for jobs that end after a minute: the successor of one pod may
use the place that is held for another of its workload.
"""

HIGH_MILLI = CORES * 1000 * 50 // 100
PODS_BELOW = (HIGH_MILLI - SYSTEM_MILLI) // USED_MILLI
"""Pods of a node that is not above the guide's threshold."""


class Site:
    """A system for a fleet on a cluster of its own."""

    def __init__(self, cluster: Cluster, system: System) -> None:
        self.cluster, self.system = cluster, system
        self.kills = 0
        self._chance = Random(20)

    async def configure(self) -> None:
        """Writes the ConfigMap."""
        body = {"metadata": {"name": NAME}, "data": {NAME: yaml.safe_dump(GUIDE)}}
        await asyncio.to_thread(self.cluster.api.call, "POST", CONFIG_MAPS, body)

    async def kill(self, count: int) -> None:
        """Kills services at random, each kill once all of them lead again."""
        for _ in range(count):
            await self.system.supervisor.wait_leading(240)
            await asyncio.sleep(self._chance.uniform(0.5, 4))
            self.system.supervisor.kill(self._chance.choice(KILLED))
            self.kills += 1
        await self.system.supervisor.wait_leading(240)

    async def heads(self) -> dict[str, int]:
        """Returns the last seq of the two contexts that evictions appear in."""
        return {name: (await self.system.log.head(name)).seq for name in ("cluster", "descheduling")}

    async def evictions_since(self, heads: dict[str, int]) -> tuple[list[PodEvicted], dict[str, str], int]:
        """Returns the evictions since then, the destinations that jobs held by uid of the pod, and the cases."""
        done = [
            msgspec.json.decode(row.data, type=PodEvicted)
            async for row in self.system.log.rows(context="cluster", kind="PodEvicted", after=heads["cluster"])
        ]
        held: dict[str, str] = {}
        after = heads["descheduling"]
        async for row in self.system.log.rows(context="descheduling", kind="MigrationEvictionDecided", after=after):
            decided = msgspec.json.decode(row.data, type=MigrationEvictionDecided)
            held[decided.pod_uid] = decided.destination
        cases = 0
        async for row in self.system.log.rows(context="descheduling", kind="EvictionCaseOpened", after=after):
            cases += bool(msgspec.json.decode(row.data, type=EvictionCaseOpened).victims)
        return done, held, cases


@pytest.fixture
async def site(own_cluster: StartCluster, tmp_path: Path) -> AsyncIterator[Site]:
    cluster = await asyncio.to_thread(own_cluster, installed=True)
    await asyncio.to_thread(cluster.start_controllers)
    kubelets = FakeKubelets(cluster.api)
    # Many runs within one window of the budgets, which have tests of their own.
    env = {"gateway": WITHOUT_EVICTION_BUDGETS}
    async with running(cluster, tmp_path, env, more=("quota-ledger", "descheduler")) as system:
        kubelets.start()
        yield Site(cluster, system)
    kubelets.stop()


async def _run(site: Site, fleet: Fleet, namespace: str, kills: int) -> None:
    """Fills the hot nodes, and kills services while they cool and half of them are drained."""
    await fleet.deploy(namespace)
    available = Available(site.cluster, namespace)
    await asyncio.to_thread(available.start)
    async with beside(fleet.report()):
        await asyncio.gather(site.kill(kills), _cool_and_drain(site, fleet, namespace))
    available.stop()
    print(f"{namespace}: {site.kills} kills so far, {available.changes} changes of pods", flush=True)
    assert min(available.least.values()) >= AVAILABLE, available.least
    await asyncio.to_thread(fleet.cordon, fleet.nodes, unschedulable=False)
    await asyncio.to_thread(site.cluster.delete_namespace, namespace)


async def _cool_and_drain(site: Site, fleet: Fleet, namespace: str) -> None:
    heads, pods = await site.heads(), len(fleet.hot) * PODS_PER_NODE
    await until(
        in_thread(fleet.on_nodes, namespace),
        "nodes below the threshold",
        holds=lambda on: max(on.values()) <= PODS_BELOW and sum(on.values()) == pods,
        within_s=900,
    )
    done, held, cases = await site.evictions_since(heads)
    print(f"{namespace}: {len(done)} evictions in {cases} cases", flush=True)
    # Each hot node loses what it has above the threshold, and no pod leaves without a place elsewhere.
    left = Counter(each.node for each in done)
    assert left == dict.fromkeys(fleet.hot, PODS_PER_NODE - PODS_BELOW), left
    assert all(held.get(each.pod_uid, "") not in ("", each.node) for each in done)
    drained, ended = fleet.hot[: len(fleet.hot) // 2], await _ended_drains(site)
    for node in drained:
        await until(lambda node=node: _drains(site, node), f"drain of {node}")  # type: ignore[misc]
    await until(
        in_thread(fleet.on_nodes, namespace),
        "drained nodes",
        holds=lambda on: not on.keys() & set(drained) and sum(on.values()) == pods,
        within_s=900,
    )
    await until(lambda: _ended_drains(site), "ends of drains", holds=lambda now: now == ended + len(drained))


async def _ended_drains(site: Site) -> int:
    return len([row async for row in site.system.log.rows(context="descheduling", kind="DrainEnded")])


async def _drains(site: Site, node: str) -> bool:
    """Begins the drain of a node; False where the descheduler was killed meanwhile."""
    try:
        return f"node {node} is being drained" in await koord(site.system, "drain", node, "--reason", "new disks")
    except AssertionError:
        return False


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("nodes", "hot", "runs", "kills"),
    [
        pytest.param(8, 2, 1, 3, id="short"),
        pytest.param(100, 20, 8, 25, id="long", marks=pytest.mark.soak),
    ],
)
async def test_hot_nodes_cool_and_nodes_are_drained_whatever_is_killed(
    site: Site, nodes: int, hot: int, runs: int, kills: int
) -> None:
    fleet = Fleet(site.cluster, nodes, hot)
    await asyncio.to_thread(fleet.create)
    await site.configure()
    for run in range(runs):
        await _run(site, fleet, f"run-{run}", kills)
    assert site.kills == runs * kills
    await koord(site.system, "audit", "verify")
