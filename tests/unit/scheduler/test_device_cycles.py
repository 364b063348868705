"""DeviceShare in cycles: which devices pods get, that nobody gets one twice, and that they are free again."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.service_manifest import MANIFEST
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.scheduler_gates import DEVICE_PLUGINS
from shared.events import RecordedEvent
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.scheduling import PodPlaced
from shared.kube.device import GPU_MODEL, GPU_VENDOR, ISOLATION_PROVIDER
from shared.kube.gpu_templates import CONFIG_MAP, KEY
from shared.kube.pod import Pod
from shared.kube.resource_names import DEVICES
from shared.kube.system_annotations import DEVICE_ALLOCATED
from shared.runtime.intent_rights import refusal
from tests.support.device_machines import CORE, GPU, MEMORY, RATIO, RDMA, SHARED, devices, gpu_node, gpu_pod
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, placements, pod, unschedulable

JOINT = "scheduling.koordinator.sh/device-joint-allocate"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
PARTITION = "scheduling.koordinator.sh/gpu-partition-spec"


def world_of(*names: str, gpus: int = 4, broken: Sequence[int] = ()) -> World:
    world = World()
    for name in names:
        world.observe(devices(name, gpus, broken=broken))
        world.add_node(gpu_node(name, gpus))
    return world


def schedule(world: World, *pods: Pod) -> list[RecordedEvent]:
    for one in pods:
        world.add_pod(one)
    world.read()
    return world.cycles()


def minors(records: Sequence[RecordedEvent], type_: str = "gpu") -> dict[str, list[int]]:
    """Pod -> minors of its devices of a type."""
    return {
        r.event.pod_uid: [each["minor"] for each in json.loads(r.event.annotations[DEVICE_ALLOCATED]).get(type_, ())]
        for r in records
        if isinstance(r.event, PodPlaced) and DEVICE_ALLOCATED in r.event.annotations
    }


def run(world: World, pods: Sequence[Pod], records: Sequence[RecordedEvent]) -> None:
    """The gateway binds what was placed, and the pods are observed on their nodes."""
    by_uid = {one.metadata.uid: one for one in pods}
    for record in records:
        if isinstance(record.event, PodPlaced):
            event, one = record.event, by_uid[record.event.pod_uid]
            world.answer(record)
            notes = {**(one.metadata.annotations or {}), **event.annotations}
            metadata = msgspec.structs.replace(one.metadata, annotations=notes)
            spec = msgspec.structs.replace(one.spec, node_name=event.node)
            world.add_pod(msgspec.structs.replace(one, metadata=metadata, spec=spec))
    world.read()


def test_half_gpus_share_a_card_and_the_placement_records_which() -> None:
    world = world_of("n", gpus=1)
    records = schedule(world, *(gpu_pod(name, {GPU: "50"}) for name in "abc"))
    assert minors(records) == {"a": [0], "b": [0]}
    assert unschedulable(records)["c"].code in ("InsufficientGpus", "InsufficientResource")
    (placed, *_) = (r.event for r in records if isinstance(r.event, PodPlaced))
    assert placed.annotations[DEVICE_ALLOCATED] == (
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"40Gi",'
        '"koordinator.sh/gpu-memory-ratio":"50"},"id":"GPU-n-0"}]}'
    )


def test_whole_gpus_are_taken_below_one_switch() -> None:
    world = world_of("n")
    records = schedule(world, gpu_pod("one", {"nvidia.com/gpu": "1"}), gpu_pod("two", {GPU: "200"}))
    assert minors(records) == {"one": [0], "two": [2, 3]}


def test_memory_alone_shares_a_card_by_its_memory() -> None:
    world = world_of("n", gpus=1)
    records = schedule(world, gpu_pod("a", {MEMORY: "60Gi"}), gpu_pod("b", {MEMORY: "30Gi"}))
    assert minors(records) == {"a": [0]}
    assert unschedulable(records)["b"].code in ("InsufficientGpus", "InsufficientResource")


def test_a_request_spread_over_two_cards_gets_half_of_each() -> None:
    world = world_of("n", gpus=2)
    records = schedule(world, gpu_pod("p", {SHARED: "2", CORE: "100", RATIO: "100"}))
    assert minors(records) == {"p": [0, 1]}


def test_devices_are_free_again_once_their_pod_is_gone() -> None:
    world = world_of("n", gpus=1)
    first, second = gpu_pod("a", {GPU: "100"}), gpu_pod("b", {GPU: "100"})
    run(world, [first], schedule(world, first))
    assert placements(schedule(world, second)) == {}
    world.drop_pod("a")
    world.wait(20)
    world.read()
    assert minors(world.cycles()) == {"b": [0]}


def test_a_rejected_binding_frees_the_devices() -> None:
    world = world_of("n", gpus=1)
    (_, placed) = schedule(world, gpu_pod("a", {GPU: "100"}))
    world.answer(placed, "rejected")
    world.drop_pod("a")
    assert minors(schedule(world, gpu_pod("b", {GPU: "100"}))) == {"b": [0]}


def test_an_allocation_that_a_tenant_wrote_is_not_believed() -> None:
    world = world_of("n", gpus=1)
    claimed = '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}}]}'
    world.add_pod(pod("forger", on="n", phase="Running", annotations={DEVICE_ALLOCATED: claimed}))
    waiting = gpu_pod("p", {GPU: "100"}, annotations={DEVICE_ALLOCATED: '{"gpu":[{"minor":7}]}'})
    assert minors(schedule(world, waiting)) == {"p": [0]}


def test_an_unhealthy_card_is_given_to_nobody() -> None:
    world = world_of("n", gpus=2, broken=(0,))
    records = schedule(world, gpu_pod("a", {GPU: "100"}), gpu_pod("b", {GPU: "100"}))
    assert minors(records) == {"a": [1]}


def test_a_pod_waits_for_a_card_that_becomes_healthy() -> None:
    world = world_of("n", gpus=1, broken=(0,))
    records = schedule(world, gpu_pod("a", {GPU: "100"}))
    assert unschedulable(records)["a"].code == "InsufficientGpus"
    world.wait(20)
    world.observe(devices("n", 1))
    world.read()
    assert minors(world.cycles()) == {"a": [0]}


def test_a_node_without_a_device_leaves_the_choice_to_its_kubelet() -> None:
    world = World()
    world.add_node(gpu_node("n"))
    records = schedule(world, gpu_pod("p", {"nvidia.com/gpu": "1"}))
    assert placements(records) == {"p": "n"}
    assert minors(records) == {}
    world.observe(devices("n", 4))
    assert minors(schedule(world, gpu_pod("q", {"nvidia.com/gpu": "1"}))) == {"q": [0]}


def test_a_node_that_lost_its_device_allocates_none_while_pods_have_some_there() -> None:
    """Its kubelet would give a card that the scheduler gave to another pod."""
    world = world_of("n")
    one = schedule(world, gpu_pod("has", {"nvidia.com/gpu": "1"}))
    assert minors(one) == {"has": [0]}
    world.answer(next(record for record in one if isinstance(record.event, PodPlaced)), "bound")
    world.observe(ObjectDeleted(resource=DEVICES, name="n", uid="device-n"))
    records = schedule(world, gpu_pod("late", {"nvidia.com/gpu": "1"}), gpu_pod("without", {}))
    assert placements(records) == {"without": "n"}
    assert unschedulable(records)["late"].code == "InsufficientDevices"
    world.observe(devices("n", 4))
    world.wait(20)
    assert minors(schedule(world)) == {"late": [1]}


def test_the_cards_of_a_device_that_cannot_be_read_are_given_to_nobody() -> None:
    world = World()
    broken = {"metadata": {"name": "n"}, "spec": {"devices": [{"type": "gpu", "minor": "first"}]}}
    world.observe(ObjectObserved(resource=DEVICES, name="n", uid="device-n", object=broken))
    world.add_node(gpu_node("n"))
    records = schedule(world, gpu_pod("p", {"nvidia.com/gpu": "1"}), gpu_pod("without", {}))
    assert unschedulable(records)["p"].code == "InsufficientDevices"
    assert placements(records) == {"without": "n"}


def test_amounts_that_are_numbers_are_read_as_quantities() -> None:
    world = World()
    reported = devices("n", 2)
    for card in reported.object["spec"]["devices"]:
        card["resources"] = {name: int(size) if size.isdigit() else size for name, size in card["resources"].items()}
    world.observe(reported)
    world.add_node(gpu_node("n"))
    records = schedule(world, gpu_pod("p", {GPU: "200"}), gpu_pod("late", {GPU: "100"}))
    assert minors(records) == {"p": [0, 1]}
    assert unschedulable(records)["late"].code == "InsufficientGpus"


def test_an_amount_that_cannot_be_read_takes_its_card_alone() -> None:
    world = World()
    reported = devices("n", 2)
    reported.object["spec"]["devices"][0]["resources"][CORE] = "many"
    world.observe(reported)
    world.add_node(gpu_node("n", 2))
    assert minors(schedule(world, gpu_pod("p", {GPU: "100"}))) == {"p": [1]}


def test_a_gpu_and_a_network_card_below_one_switch() -> None:
    world = world_of("n")
    joint = {JOINT: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'}
    requests = {GPU: "200", RDMA: "100"}
    records = schedule(world, gpu_pod("a", requests, annotations=joint), gpu_pod("b", requests, annotations=joint))
    assert minors(records) == {"a": [0, 1], "b": [2, 3]}
    assert minors(records, "rdma") == {"a": [0], "b": [1]}


def test_partitions_of_the_device_are_honoured() -> None:
    world = World()
    table = {"2": [{"minors": [0, 2], "allocationScore": 1}, {"minors": [1, 3], "allocationScore": 1}]}
    notes = {"scheduling.koordinator.sh/gpu-partitions": json.dumps(table)}
    world.observe(devices("n", labels={"node.koordinator.sh/gpu-partition-policy": "Honor"}, annotations=notes))
    world.add_node(gpu_node("n"))
    records = schedule(world, gpu_pod("a", {GPU: "200"}), gpu_pod("b", {GPU: "300"}))
    assert minors(records) == {"a": [0, 2]}
    assert unschedulable(records)["b"].code in ("GpuCountUnsupported", "InsufficientResource")


def test_invalid_requests_are_named() -> None:
    world = world_of("n")
    message = unschedulable(schedule(world, gpu_pod("p", {GPU: "150"})))["p"].message
    assert "invalid resource unit koordinator.sh/gpu: 150" in message
    message = unschedulable(schedule(world, gpu_pod("q", {CORE: "50"})))["q"].message
    assert "invalid resource device requests: [koordinator.sh/gpu-core]" in message
    broken = unschedulable(schedule(world, gpu_pod("r", {GPU: "50"}, annotations={HINT: "{"})))["r"]
    assert (
        f"annotation {HINT} cannot be read: it is no JSON: its end is missing; correct or remove it" in broken.message
    )


def test_a_template_divides_a_gpu() -> None:
    world = World()
    amounts = {"huawei.com/npu-core": "8", "huawei.com/npu-cpu": "7", "huawei.com/npu-dvpp": "100", MEMORY: "24Gi"}
    labels = {"node.koordinator.sh/gpu-vendor": "huawei", "node.koordinator.sh/gpu-model": "Ascend-310P"}
    card = {"type": "gpu", "id": "NPU-0", "minor": 0, "health": True, "resources": amounts}
    body = {"metadata": {"name": "n", "labels": labels}, "spec": {"devices": [card]}}
    world.observe(ObjectObserved(resource=DEVICES, name="n", uid="device-n", object=body))
    node = gpu_node("n")
    status = msgspec.structs.replace(node.status, allocatable={**(node.status.allocatable or {}), **amounts})
    world.add_node(msgspec.structs.replace(node, status=status))
    requests = {"huawei.com/npu-core": "1", "huawei.com/npu-cpu": "1", MEMORY: "3Gi", SHARED: "1"}
    waiting = gpu_pod("p", requests)
    assert unschedulable(schedule(world, waiting))["p"].code == "NoGpuTemplate"
    templates = (
        "huawei-Ascend-310P: {vir01: {huawei.com/npu-core: 1, huawei.com/npu-cpu: 1, koordinator.sh/gpu-memory: 3Gi}}"
    )
    world.observe(ObjectObserved(resource="configmaps", name=CONFIG_MAP, uid="t", object={"data": {KEY: templates}}))
    world.wait(20)
    world.read()
    (placed,) = (r.event for r in world.cycles() if isinstance(r.event, PodPlaced))
    (given_card,) = json.loads(placed.annotations[DEVICE_ALLOCATED])["gpu"]
    assert given_card["extension"] == {"gpuSharedResourceTemplate": "vir01"}


def test_a_pod_of_higher_priority_evicts_the_pod_with_the_card() -> None:
    world = world_of("n", gpus=1)
    low = gpu_pod("low", {GPU: "100"}, priority=1)
    run(world, [low], schedule(world, low))
    records = schedule(world, gpu_pod("high", {GPU: "100"}, priority=9))
    assert [r.event.pod_uid for r in records if isinstance(r.event, EvictionRequested)] == ["low"]


REQUESTS = ({GPU: "30"}, {GPU: "50"}, {GPU: "100"}, {GPU: "200"}, {MEMORY: "20Gi"}, {GPU: "100", RDMA: "50"})


def used_shares(view: SchedulerState) -> Counter[tuple[str, int, str]]:
    used: Counter[tuple[str, int, str]] = Counter()
    for record in view.pods.values():
        assignment = record.assignment()
        for type_, cards in json.loads(
            ((assignment and assignment.allocation) or {}).get(DEVICE_ALLOCATED, "{}")
        ).items():
            for card in cards:
                for name in (CORE, RATIO, RDMA):
                    used[type_, card["minor"], name] += int(card["resources"].get(name, 0))
    return used


@given(st.lists(st.tuples(st.sampled_from(REQUESTS), st.booleans()), max_size=14))
@settings(max_examples=examples(30), deadline=None)
def test_no_share_is_allocated_twice_whatever_comes_and_goes(steps: Sequence[tuple[Mapping[str, str], bool]]) -> None:
    world = world_of("n", gpus=4)
    for number, (requests, ends_one) in enumerate(steps):
        one = gpu_pod(f"p{number}", requests)
        run(world, [one], schedule(world, one))
        if ends_one and world.view.pods:
            world.drop_pod(min(world.view.pods))
            world.read()
        assert all(share <= 100 for share in used_shares(world.view).values())


@given(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=8))
@settings(max_examples=examples(30), deadline=None)
def test_an_undone_step_leaves_the_same_results(requests: Sequence[Mapping[str, str]]) -> None:
    world = world_of("n", "m", gpus=4)
    schedule(world, *(gpu_pod(f"p{number}", each) for number, each in enumerate(requests)))
    cache = world.indexed()
    cache.settle()
    transaction = CycleTransaction(cache, world.now_ns)
    probes = [record for record in world.view.pods.values() if record.pod_class is not None]
    profile = cache.profiles["koord-scheduler"]

    def seen() -> list[object]:
        found: list[object] = []
        for probe in probes:
            assert probe.pod_class is not None
            evaluation = transaction.evaluation(profile, probe.pod_class)
            found.append((evaluation.total.tolist(), evaluation.by.tolist()))
        return found

    before, mark = seen(), transaction.mark()
    for row in range(2):
        for assignment in list(cache.on.get(row, {}).values()):
            transaction.remove(assignment, row)
            for probe in probes[:1]:
                assert probe.pod_class is not None
                evaluation = transaction.evaluation(profile, probe.pod_class)
                allocation = transaction.reserve(evaluation, row)
                if allocation is not None:
                    transaction.place(probe, probe.pod_class, row, allocation)
    transaction.undo(mark)
    assert seen() == before


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, {}),
        (
            {GPU_VENDOR: "huawei", GPU_MODEL: "Ascend-910B"},
            {"predicate-time": "NOW", "huawei.com/npu-core": "0,1"},
        ),
        (
            {GPU_VENDOR: "huawei", GPU_MODEL: "Ascend-310P3-300I-DUO"},
            {"predicate-time": "NOW", "huawei.com/Ascend310P": "Ascend310P-0,Ascend310P-1"},
        ),
        (
            {GPU_VENDOR: "metax"},
            {
                "metax-tech.com/gpu-devices-allocated": '[[{"uuid":"GPU-n-0","compute":100,"vRam":81920},'
                '{"uuid":"GPU-n-1","compute":100,"vRam":81920}]]'
            },
        ),
    ],
)
def test_the_gate_adds_what_device_plugins_read(labels: Mapping[str, str], expected: Mapping[str, str]) -> None:
    for gates in (frozenset[str](), frozenset((DEVICE_PLUGINS,))):
        world = World()
        world.scheduler_gates = gates
        world.observe(devices("n", 4, labels=labels))
        world.add_node(gpu_node("n", 4))
        (placed,) = (r.event for r in schedule(world, gpu_pod("p", {GPU: "200"})) if isinstance(r.event, PodPlaced))
        added = {name: text for name, text in placed.annotations.items() if name != DEVICE_ALLOCATED}
        if not gates:
            assert added == {}
            continue
        moment = added.pop("scheduling.koordinator.sh/bind-timestamp")
        assert int(moment) == world.now_ns
        assert added == {
            "scheduling.koordinator.sh/gpu-minors": "0,1",
            **{name: text.replace("NOW", moment) for name, text in expected.items()},
        }
        assert placed.node_lock == ("hami.io/mutex.lock" if labels.get(GPU_VENDOR) == "metax" else "")


@pytest.mark.parametrize(
    ("requests", "profile", "why"),
    [
        ({CORE: "30", MEMORY: "8Gi"}, "0_30_32", ""),
        ({CORE: "30", MEMORY: "300Mi"}, "0_30_1", ""),
        ({CORE: "30", MEMORY: "200Mi"}, "", "at least 256 MiB"),
        ({MEMORY: "8Gi"}, "", "it needs koordinator.sh/gpu-core"),
        ({GPU: "200"}, "", "one card"),
    ],
)
def test_cambricons_plugin_gets_a_part_of_one_card_and_no_pod_that_it_cannot_serve(
    requests: Mapping[str, str], profile: str, why: str
) -> None:
    """Source: spec/scheduler-workloads.md 3.9, its examples."""
    world = World()
    world.scheduler_gates = frozenset((DEVICE_PLUGINS,))
    world.observe(devices("n", 4, labels={GPU_VENDOR: "cambricon"}))
    world.add_node(gpu_node("n", 4))
    records = schedule(world, gpu_pod("p", requests))
    placed = [record.event for record in records if isinstance(record.event, PodPlaced)]
    assert [one.annotations["CAMBRICON_DSMLU_PROFILE"] for one in placed] == [profile] * (not why)
    assert [one.annotations["CAMBRICON_DSMLU_ASSIGHED"] for one in placed] == ["false"] * (not why)
    assert [one.node_lock for one in placed] == ["cambricon.com/dsmlu.lock"] * (not why)
    if why:
        (refused,) = unschedulable(records).values()
        assert refused.code == "DevicePluginRefuses"
        assert why in refused.message


@pytest.mark.parametrize(
    ("gates", "provider", "expected"),
    [
        (frozenset((DEVICE_PLUGINS,)), "HAMi-core", ["n"]),
        (frozenset((DEVICE_PLUGINS,)), "other", []),
        (frozenset[str](), "HAMi-core", []),
    ],
)
def test_a_pod_that_hami_core_isolates_gets_a_label_with_its_node(
    gates: frozenset[str], provider: str, expected: list[str]
) -> None:
    world = World()
    world.scheduler_gates = gates
    world.observe(devices("n", 4))
    world.add_node(gpu_node("n", 4, labels={ISOLATION_PROVIDER: provider}))
    one = gpu_pod("p", {GPU: "50"})
    one = msgspec.structs.replace(
        one, metadata=msgspec.structs.replace(one.metadata, labels={ISOLATION_PROVIDER: provider})
    )
    desired = [record.event for record in schedule(world, one) if isinstance(record.event, FieldsDesired)]
    assert [each.patch["metadata"]["labels"]["hami.io/vgpu-node"] for each in desired] == expected
    assert {each.uid for each in desired} <= {one.metadata.uid}
    assert [refusal("scheduling", MANIFEST.intents, each) for each in desired] == [""] * len(desired)
