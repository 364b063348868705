"""Timed changes: pods start and end, nodes report, generated pods arrive; and simulated time."""

from itertools import pairwise

from services.simulator.clock import Clock
from services.simulator.kubelet.pod_lifecycle import RUNS_FOR
from services.simulator.kubelet.usage_reports import LOAD
from shared.events.cluster import NodeMetricObserved, PodObserved
from shared.events.scheduling import PodPlaced
from shared.kube.instants import SECOND
from shared.kube.quantity import amounts
from tests.unit.simulator.simulated_world import START_NS, World, node, pod


def bind(world: World, key: str, to: str) -> None:
    uid = world.state.pods()[key].metadata.uid
    world.intend(PodPlaced(pod_uid=uid, pod=key, node=to, cycle=1, request={}))


def test_a_bound_pod_starts_ends_and_is_removed_after_its_delays() -> None:
    world = World(start_delay_s=2, keep_ended_s=30)
    body = pod()
    body["metadata"]["annotations"] = {RUNS_FOR: "1m"}
    world.create(node(), body)
    world.advance(100)
    bind(world, "default/web", "n1")
    phases = []
    for seconds in (1, 1, 59, 1, 29, 1):
        world.advance(seconds)
        found = world.state.pods().get("default/web")
        phases.append(found.status.phase if found else "gone")
    assert phases == ["Pending", "Running", "Running", "Succeeded", "Succeeded", "gone"]
    running = next(event.object for event in world.events(PodObserved) if event.object.status.phase == "Running")
    assert running.status.start_time == "2027-01-15T08:01:42Z"
    assert {one.type: one.status for one in running.status.conditions} == {
        "PodScheduled": "True",
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }


def test_a_pod_without_a_duration_runs_for_ever() -> None:
    world = World()
    world.create(node(), pod())
    bind(world, "default/web", "n1")
    world.advance(10_000_000)
    assert world.state.pods()["default/web"].status.phase == "Running"
    assert world.timers.next_ns is None


def test_pods_are_removed_with_their_node() -> None:
    world = World()
    world.create(node(), pod())
    bind(world, "default/web", "n1")
    world.request("delete", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    assert not world.state.pods()
    assert not world.state.pods_on


def test_every_node_reports_at_once_and_then_in_each_interval_at_its_own_time() -> None:
    world = World(report_interval_s=60, nodes=20)
    world.advance(0)
    assert len(world.events(NodeMetricObserved)) == 20
    for _ in range(600):
        world.advance(1)
    times: dict[str, list[int]] = {}
    for record in world.logs["cluster"]:
        if isinstance(record.event, NodeMetricObserved):
            times.setdefault(record.event.node, []).append(record.at_ns // SECOND)
    assert all(len(each) == 11 for each in times.values())
    assert all(later - earlier == 60 for each in times.values() for earlier, later in pairwise(each[1:]))
    assert len({each[1] for each in times.values()}) > 10


def test_a_report_has_the_usage_of_pods_and_the_load_outside_of_them() -> None:
    world = World(report_interval_s=60)
    busy = pod("busy", priorityClassName="koord-batch")
    busy["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4", "memory": "8Gi"}}
    world.create(node("idle"), node("hot", annotations={LOAD: "70"}), busy)
    bind(world, "default/busy", "hot")
    world.advance(1)
    world.advance(1900)
    idle, hot = (world.state.node_metrics()[name].status.node_metric for name in ("idle", "hot"))
    assert idle is not None
    assert hot is not None
    assert idle.node_usage is not None
    assert hot.node_usage is not None
    assert hot.system_usage is not None
    idle_cpu, hot_cpu = (amounts(one.node_usage.resources or {})["cpu"] for one in (idle, hot) if one.node_usage)
    assert idle_cpu < 1_500
    assert 22_400 * 0.95 + 2_800 * 0.8 < hot_cpu < 22_400 * 1.05 + 4_000 * 1.2
    (usage,) = world.state.node_metrics()["hot"].status.pods_metric
    assert (usage.name, usage.priority, usage.qos) == ("busy", "koord-batch", "LS")
    assert usage.pod_usage is not None
    pod_cpu = amounts(usage.pod_usage.resources or {})["cpu"]
    assert 2_800 * 0.8 < pod_cpu < 4_000 * 1.2
    system_cpu = amounts(hot.system_usage.resources or {})["cpu"]
    assert system_cpu == hot_cpu - pod_cpu
    assert [window.duration for window in hot.aggregated_node_usages] == ["5m0s", "10m0s", "30m0s"]
    for window in hot.aggregated_node_usages:
        assert window.usage is not None
        cpu = {name: amounts(one.resources or {})["cpu"] for name, one in window.usage.items()}
        assert cpu["p50"] <= cpu["p90"] <= cpu["p95"] <= cpu["p99"]
        assert abs(cpu["avg"] - hot_cpu) < 3_000


def test_reports_are_the_same_for_the_same_seed() -> None:
    def reported() -> list[NodeMetricObserved]:
        world = World(report_interval_s=60, nodes=5)
        world.advance(90)
        return world.events(NodeMetricObserved)

    assert reported() == reported()


def test_some_generated_nodes_run_hot_and_offer_less_to_batch_work() -> None:
    world = World(nodes=10, hot_percent=20, batch_capacity_percent=60)
    loads = {name: int((one.metadata.annotations or {})[LOAD]) for name, one in world.state.nodes().items()}
    hot = [name for name, load in loads.items() if load > 50]
    assert len(hot) == 2
    for name, one in world.state.nodes().items():
        batch = amounts(one.status.allocatable or {})["kubernetes.io/batch-cpu"]
        assert batch == 32_000 * min(60, 100 - loads[name]) // 100


def test_generated_pods_arrive_at_their_rate_and_not_again_after_a_restart() -> None:
    world = World(pods=30, pods_per_s=10.0, pods_after_s=1.0)
    assert not world.state.pods()
    world.advance(1)
    assert len(world.state.pods()) == 1
    world.advance(1)
    assert len(world.state.pods()) == 11
    restarted = World(pods=30, pods_per_s=10.0, pods_after_s=1.0)
    restarted.state.restore(world.state.encode()) if not restarted.state.pods() else None
    restarted.now_ns = world.now_ns + 60 * SECOND
    restarted.step()
    assert len(restarted.state.pods()) == 30
    kinds = {name.split("/")[1].split("-")[0] for name in restarted.state.pods()}
    assert kinds == {"web", "batch"}


def test_time_runs_at_its_speed_jumps_forward_and_never_back() -> None:
    clock = Clock(wall_ns=START_NS, seen_ns=START_NS + 5 * SECOND, speed=60)
    assert clock.now_ns(START_NS) == START_NS + 5 * SECOND
    assert clock.now_ns(START_NS + SECOND) == START_NS + 65 * SECOND
    assert clock.wait_s(START_NS + 125 * SECOND, START_NS + SECOND) == 1
    clock.jump(START_NS + 1000 * SECOND, START_NS + SECOND)
    assert clock.now_ns(START_NS + SECOND) == START_NS + 1000 * SECOND
    clock.jump(START_NS, START_NS + SECOND)
    assert clock.now_ns(START_NS + SECOND) == START_NS + 1000 * SECOND
