"""Debug views of nodes at `/apis/v1/plugins/...`."""

from msgspec.structs import replace

from services.scheduler.extender_server.debug_views import plugin_views
from shared.kube.instants import instant_text
from shared.kube.node import PodUsage, ResourceMap
from tests.support.numa_machines import holding_pod, machine, reported
from tests.support.scheduling_world import START_NS, World, metric, node, pod

LOAD, NUMA = "LoadAwareScheduling/node", "NodeNUMAResource/nodes"


def test_the_view_of_a_nodes_load_lists_the_pods_that_its_report_cannot_contain() -> None:
    world = World(believes_annotations=True)
    world.add_node(node("n"))
    measured = metric("n", cpu="1", memory="1Gi")
    usage = PodUsage(name="old", namespace="d", priority="koord-prod", pod_usage=ResourceMap(resources={"cpu": "300m"}))
    world.wait(-600)
    world.add_pod(pod("old", cpu="1", memory="1Gi", on="n", phase="Running"))
    world.wait(600)
    world.add_pod(pod("new", cpu="1", memory="1Gi", on="n", phase="Running"))
    world.report(replace(measured, status=replace(measured.status, pods_metric=(usage,))))
    world.read()
    view = plugin_views(world.indexed())[LOAD]("n")
    estimate = {"cpu": 850, "memory": 751619277}  # 85 % of a core, 70 % of a GiB
    assert view == {
        "pods": [
            {"timestamp": instant_text(START_NS - 600 * 10**9), "pod": "d/old"},
            {"timestamp": instant_text(START_NS), "pod": "d/new"},
        ],
        "updateTime": instant_text(START_NS),
        "nodeUsage": {"cpu": 1000, "memory": 1 << 30},
        "prodUsage": {"cpu": 300, "memory": 0},
        "nodeDelta": estimate,
        "prodDelta": estimate,
        "nodeEstimated": {name: 2 * size for name, size in estimate.items()},
        "nodeDeltaPods": ["d/new"],
        "prodDeltaPods": ["d/new"],
        "nodeEstimatedPods": ["d/new", "d/old"],
    }


def test_a_node_without_a_report_has_pods_alone_and_an_unknown_one_nothing() -> None:
    world = World(believes_annotations=True)
    world.add_node(node("n"))
    world.add_node(node("empty"))
    world.add_pod(pod("p", on="n", phase="Running"))
    world.read()
    view = plugin_views(world.indexed())[LOAD]
    assert view("n") == {"pods": [{"timestamp": instant_text(START_NS), "pod": "d/p"}]}
    assert view("empty") == {}
    assert view("nowhere") is None


def test_the_view_of_cpus_and_zones_lists_the_pods_that_hold_them() -> None:
    world = World(believes_annotations=True)
    world.observe(reported("n", zones=2, cpus=4))
    world.add_node(machine("n", zones=2, cpus=4))
    world.add_pod(holding_pod("p", "0-1", "n", zones={0: {"cpu": "2", "memory": "1Gi"}}))
    world.read()
    view = plugin_views(world.indexed())[NUMA]("n")
    assert view is not None
    assert (view["cpus"], view["allocatedCPUs"], view["availableCPUs"]) == ("0-7", "0-1", "2-7")
    first, second = view["numaNodes"]
    assert first == {
        "node": 0,
        "allocatable": {"cpu": 4000, "memory": 16 << 30},
        "allocated": {"cpu": 2000, "memory": 1 << 30},
        "available": {"cpu": 2000, "memory": 15 << 30},
        "use": "single",
    }
    assert (second["allocated"], second["use"]) == ({}, "idle")
    assert view["pods"] == [
        {
            "uid": "p",
            "cpuset": "0-1",
            "exclusivePolicy": "",
            "numaNodeResources": [{"node": 0, "resources": {"cpu": 2000, "memory": 1 << 30}}],
        }
    ]
