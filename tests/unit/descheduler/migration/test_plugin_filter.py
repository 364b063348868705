"""MigrationController as the filter of other plugins."""

from services.descheduler.migration.plugin_filter import migration_filter
from services.descheduler.plugins.registry import REGISTRY
from services.descheduler.state.measured_nodes import pod_on_node
from tests.support.migration import migration_args, moved_pod, owner
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
    assert limited == "2 evictions of its workload in 300 s are allowed"
