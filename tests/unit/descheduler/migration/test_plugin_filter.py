"""MigrationController as the filter of other plugins."""

from random import Random

import pytest

from services.descheduler.migration.filter_chain import filter_for_plugins
from services.descheduler.migration.plugin_filter import CycleFilter, migration_filter
from services.descheduler.plugins.registry import REGISTRY
from services.descheduler.state.measured_nodes import pod_on_node
from tests.support.migration import cluster, job_body, migration_args, moved_pod, owner
from tests.support.migration_world import World


def test_plugins_get_the_reason_why_a_pod_may_not_move() -> None:
    args = migration_args()
    world = World(args)
    pods = world.workload("web", 10)
    bare, agent = moved_pod("bare"), moved_pod("agent", controller=owner("DaemonSet", "agents"))
    world.put_pod(bare)
    world.put_pod(agent)
    new_filter = REGISTRY["MigrationController"].new_filter
    assert new_filter is migration_filter
    found = migration_filter(world.state, args, world.now_ns)
    assert found(pod_on_node(pods[0])) == ""
    assert "no owner" in found(pod_on_node(bare))
    assert found(pod_on_node(agent)) == "a DaemonSet owns it"
    world.request("j", "web-0", mode="EvictDirectly")
    assert "PodMigrationJob j moves it" in migration_filter(world.state, args, world.now_ns)(pod_on_node(pods[0]))
    for _ in range(4):
        world.decide()
        world.gateway()
    world.kubelets_end_pods()
    world.decide()
    world.gateway()
    limited = migration_filter(world.state, args, world.now_ns)(pod_on_node(pods[1]))
    assert limited == "at most 2 evictions of its workload in 300 s"


@pytest.mark.parametrize("seed", range(30))
def test_what_a_cycle_finds_once_is_what_the_chain_finds_for_each_pod(seed: int) -> None:
    random = Random(seed)
    deployments = {f"web-{number}": random.randrange(1, 12) for number in range(3)}
    pods = [
        moved_pod(
            f"p-{number}",
            controller=owner("ReplicaSet", f"{random.choice(list(deployments))}-rs") if random.random() < 0.9 else None,
            node=f"n{random.randrange(4)}",
            ready=random.random() < 0.8,
            priority=random.choice((None, 5500, 2_000_000_000)),
            annotations={"descheduler.alpha.kubernetes.io/evict": ""} if random.random() < 0.1 else None,
        )
        for number in range(20)
    ]
    jobs = [
        job_body(f"j-{number}", random.choice(pods).metadata.name, phase=random.choice(("", "Running", "Succeeded")))
        for number in range(random.randrange(5))
    ]
    facts = cluster(pods, jobs=jobs, deployments=deployments)
    for limit in (0, 1, 2):
        args = migration_args(maxMigratingPerNode=limit, maxMigratingGlobally=limit, maxUnavailablePerWorkload=3)
        entries = [pod_on_node(pod) for pod in pods]
        for other_args in (args, migration_args(evictSystemCriticalPods=True)):
            chain, each = filter_for_plugins(facts, other_args), CycleFilter(filter_for_plugins(facts, other_args))
            found = [each.reason(entry) for entry in entries]
            assert found == [chain.reason(pod) for pod in pods]
            assert any(found)
