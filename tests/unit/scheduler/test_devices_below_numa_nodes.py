"""Devices and CPUs of a pod below the same NUMA nodes: one topology manager merges the hints of both plugins."""

import json
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.events import RecordedEvent
from shared.events.scheduling import PodPlaced
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.system_annotations import DEVICE_ALLOCATED, RESOURCE_STATUS
from tests.support.device_machines import CORE, GPU, MEMORY, RATIO, RDMA, SHARED, devices
from tests.support.hypothesis_examples import examples
from tests.support.numa_machines import NUMA_LABEL, NUMA_SPEC, machine, reported
from tests.support.scheduling_world import World, pod, unschedulable, use

GPUS = 8
"""Four below each of two NUMA nodes, beside eight CPUs each."""

UNALIGNED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  pluginConfig: [{name: DeviceShare, args: {disableDeviceNUMATopologyAlignment: true}}]
  plugins:
    filter: {enabled: [{name: NodeNUMAResource}, {name: DeviceShare}]}
"""


def numa_node(name: str, policy: str) -> Node:
    offered = {
        CORE: "800", RATIO: "800", MEMORY: "640Gi", GPU: "800", SHARED: "10000", "nvidia.com/gpu": "8", RDMA: "400",
    }  # fmt: skip
    return machine(name, labels={NUMA_LABEL: policy} if policy else None, extra=offered)


def world_of(*names: str, policy: str = "SingleNUMANode", broken: Sequence[int] = ()) -> World:
    world = World()
    for name in names:
        world.observe(reported(name))
        world.observe(devices(name, GPUS, rdma=4, broken=broken))
        world.add_node(numa_node(name, policy))
    return world


def requesting(name: str, cpu: int, gpu: int = 0, rdma: int = 0, annotations: Mapping[str, str] | None = None) -> Pod:
    extra = {GPU: str(gpu)} if gpu else {}
    extra |= {RDMA: str(rdma)} if rdma else {}
    return pod(name, cpu=str(cpu), memory="1Gi", extra=extra, annotations=annotations)


def schedule(world: World, *pods: Pod) -> list[RecordedEvent]:
    for one in pods:
        world.add_pod(one)
    world.read()
    return world.cycles()


def placed(records: Sequence[RecordedEvent]) -> dict[str, tuple[list[int], list[int]]]:
    """Pod -> NUMA nodes of its CPUs, and minors of its GPUs."""
    found = {}
    for record in records:
        if isinstance(event := record.event, PodPlaced):
            status = json.loads(event.annotations.get(RESOURCE_STATUS, "{}"))
            given = json.loads(event.annotations.get(DEVICE_ALLOCATED, "{}"))
            zones = [each["node"] for each in status.get("numaNodeResources", ())]
            found[event.pod_uid] = zones, [each["minor"] for each in given.get("gpu", ())]
    return found


@pytest.mark.parametrize("policy", ["SingleNUMANode", "Restricted", "BestEffort"])
def test_gpus_come_from_the_numa_node_that_has_the_cpus(policy: str) -> None:
    world = world_of("n", policy=policy)
    assert placed(schedule(world, requesting("cpus", 6))) == {"cpus": ([0], [])}
    assert placed(schedule(world, requesting("both", 4, gpu=100))) == {"both": ([1], [4])}


def test_cpus_come_from_the_numa_node_that_has_the_gpus() -> None:
    world = world_of("n", broken=(0, 1, 2, 3))
    assert placed(schedule(world, requesting("both", 4, gpu=200))) == {"both": ([1], [4, 5])}


@pytest.mark.parametrize("policy", ["SingleNUMANode", "Restricted"])
def test_a_node_whose_free_cpus_and_gpus_are_apart_is_rejected(policy: str) -> None:
    world = world_of("n", policy=policy, broken=(4, 5, 6, 7))
    schedule(world, requesting("cpus", 6))
    records = schedule(world, requesting("both", 4, gpu=100))
    assert placed(records) == {}
    assert "NUMA" in unschedulable(records)["both"].message


def test_best_effort_takes_what_there_is() -> None:
    world = world_of("n", policy="BestEffort", broken=(4, 5, 6, 7))
    schedule(world, requesting("cpus", 6))
    (zones, gpus) = placed(schedule(world, requesting("both", 4, gpu=100)))["both"]
    assert gpus == [0]
    assert zones


def test_a_pod_with_a_policy_of_its_own_is_aligned_on_any_node() -> None:
    world = world_of("n", policy="")
    schedule(world, requesting("cpus", 6, annotations={NUMA_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}'}))
    own = {NUMA_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}'}
    assert placed(schedule(world, requesting("both", 4, gpu=100, annotations=own))) == {"both": ([1], [4])}


def test_without_a_policy_gpus_are_chosen_by_themselves() -> None:
    world = world_of("n", policy="")
    schedule(world, requesting("cpus", 6))
    assert placed(schedule(world, requesting("both", 4, gpu=100))) == {"both": ([], [0])}


def test_the_argument_switches_the_alignment_off() -> None:
    world = world_of("n")
    use(world, UNALIGNED)
    schedule(world, requesting("cpus", 6))
    assert placed(schedule(world, requesting("both", 4, gpu=100))) == {"both": ([1], [0])}


def test_of_several_nodes_the_one_where_both_are_together_is_chosen() -> None:
    world = world_of("a", "b", broken=(4, 5, 6, 7))
    held = schedule(world, requesting("one", 6))
    records = schedule(world, requesting("both", 4, gpu=100))
    by_pod = {r.event.pod_uid: r.event.node for r in (*held, *records) if isinstance(r.event, PodPlaced)}
    assert by_pod["both"] != by_pod["one"], "CPUs beside the GPUs are left on the other node"


REQUESTS = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from((0, 50, 100, 200, 400)), st.sampled_from((0, 0, 100))),
    min_size=1, max_size=14,
)  # fmt: skip


@given(REQUESTS)
@settings(max_examples=examples(30), deadline=None)
def test_on_nodes_with_one_numa_node_a_pod_everything_of_a_pod_is_below_one(
    requests: list[tuple[int, int, int]],
) -> None:
    world = world_of("a", "b")
    taken: dict[tuple[str, int], int] = {}
    for number, (cpu, gpu, rdma) in enumerate(requests):
        for record in schedule(world, requesting(f"p{number}", cpu, gpu, rdma)):
            if not isinstance(event := record.event, PodPlaced) or event.pod_uid != f"p{number}":
                continue
            given = json.loads(event.annotations.get(DEVICE_ALLOCATED, "{}"))
            numas = {each["minor"] // 4 for each in given.get("gpu", ())}
            numas |= {each["minor"] // 2 for each in given.get("rdma", ())}
            (zones, _) = placed([record])[event.pod_uid]
            assert len(numas | set(zones)) == 1, (numas, zones)
            for each in given.get("gpu", ()):
                place = event.node, each["minor"]
                taken[place] = taken.get(place, 0) + int(each["resources"][CORE])
    assert all(percent <= 100 for percent in taken.values()), "no card is given twice"
