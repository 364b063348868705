"""NodeNUMAResource in cycles: what pods are given, that nobody gets it twice, and that it is free again when they go."""

import json
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.configuration import read_config
from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.plugins.node_numa_resource.allocation_annotations import allocation_of
from services.scheduler.plugins.node_numa_resource.node_cache import NumaCache
from services.scheduler.plugins.node_numa_resource.plugin import NodeNUMAResource
from services.scheduler.state.pod_equivalence_class import PodClass, class_key, common_part
from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.watched_api_resources import NODE_TOPOLOGIES
from shared.domain.cpu_set import parse_cpus
from shared.events import RecordedEvent
from shared.events.cluster import ObjectDeleted
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodPlaced
from shared.kube.pod import Pod
from tests.support.hypothesis_examples import examples
from tests.support.numa_machines import (
    BIND_LABEL,
    NUMA_LABEL,
    NUMA_SPEC,
    SPEC,
    STATUS,
    bound_pod,
    holding_pod,
    machine,
    reported,
)
from tests.support.scheduling_world import World, cycles_of, placements, pod, unschedulable


def world_of(*names: str, labels: dict[str, str] | None = None) -> World:
    world = World(believes_annotations=True)
    for name in names:
        world.observe(reported(name))
        world.add_node(machine(name, labels=labels))
    return world


def schedule(world: World, *pods: Pod) -> list[RecordedEvent]:
    for one in pods:
        world.add_pod(one)
    world.read()
    return world.cycles()


def given_to(records: Sequence[RecordedEvent]) -> dict[str, dict[str, str]]:
    return {r.event.pod_uid: r.event.annotations for r in records if isinstance(r.event, PodPlaced)}


def cpus_of(records: Sequence[RecordedEvent]) -> dict[str, str]:
    return {uid: json.loads(notes[STATUS]).get("cpuset", "") for uid, notes in given_to(records).items() if notes}


def bind(world: World, pods: Sequence[Pod], records: Sequence[RecordedEvent]) -> None:
    """The gateway binds what was placed, and the pods are observed with what the binding gave them."""
    by_uid = {one.metadata.uid: one for one in pods}
    for record in records:
        if not isinstance(record.event, PodPlaced):
            continue
        event, one = record.event, by_uid[record.event.pod_uid]
        world.answer(record)
        notes = {**(one.metadata.annotations or {}), **event.annotations}
        metadata = msgspec.structs.replace(one.metadata, annotations=notes or None)
        world.add_pod(
            msgspec.structs.replace(
                one, metadata=metadata, spec=msgspec.structs.replace(one.spec, node_name=event.node)
            )
        )
    world.read()


def test_pods_of_one_cycle_get_cpus_of_their_own_and_the_placement_records_them() -> None:
    world = world_of("n")
    records = schedule(world, bound_pod("a", 4), bound_pod("b", 4), bound_pod("c", 6, required=True, bind="FullPCPUs"))
    assert cpus_of(records) == {"a": "0-3", "b": "8-11", "c": "4-7,12-13"}
    assert given_to(records)["c"] == {STATUS: '{"cpuset":"4-7,12-13"}'}
    assert given_to(records)["a"] == {SPEC: '{"preferredCPUBindPolicy":"FullPCPUs"}', STATUS: '{"cpuset":"0-3"}'}


def test_a_pod_without_wishes_is_given_nothing() -> None:
    world = world_of("n")
    assert given_to(schedule(world, pod("p"))) == {"p": {}}


def test_an_allocation_is_kept_until_the_pod_has_it_in_its_annotations_and_is_freed_with_the_pod() -> None:
    world = world_of("n")
    first = [bound_pod("a", 8), bound_pod("b", 8)]
    placed = schedule(world, *first)
    assert cpus_of(placed) == {"a": "0-7", "b": "8-15"}
    small = bound_pod("c", 2, required=True, bind="FullPCPUs")
    assert unschedulable(schedule(world, small))["c"].code in ("NotEnoughCpus", "InsufficientResource")
    bind(world, first, placed)
    world.drop_pod("a")
    world.wait(20)
    world.read()
    assert cpus_of(world.cycles()) == {"c": "0-1"}


def test_a_rejected_binding_frees_the_cpus() -> None:
    world = world_of("n")
    (_, placed) = schedule(world, bound_pod("a", 16))
    world.answer(placed, "rejected")
    world.drop_pod("a")
    assert cpus_of(schedule(world, bound_pod("b", 16))) == {"b": "0-15"}


def test_a_node_that_passes_without_allocatable_cpus_is_skipped() -> None:
    # A preferred policy is not looked at before a node is taken; `held` has no CPU left although it has room.
    world = world_of("held", "free")
    world.add_pod(holding_pod("h", "0-15", "held"))
    world.add_pod(pod("x", cpu="8", on="free", phase="Running"))
    records = schedule(world, bound_pod("p", 4))
    assert placements(records) == {"p": "free"}
    world.add_pod(bound_pod("q", 14))
    world.read()
    assert unschedulable(world.cycles())["q"].code in ("NotEnoughCpus", "InsufficientResource")


def test_zones_of_a_node_with_a_numa_policy_are_allocated_and_later_pods_see_the_rest() -> None:
    world = world_of("n", labels={NUMA_LABEL: "SingleNUMANode"})
    records = schedule(world, *(pod(f"p{number}", cpu="6", memory="4Gi") for number in range(3)))
    zones = {uid: allocation_of(notes).zones for uid, notes in given_to(records).items()}
    six = {"cpu": 6000, "memory": 4 << 30}
    assert zones == {"p0": ((0, six),), "p1": ((1, six),)}
    assert unschedulable(records)["p2"].code == "InsufficientResource"
    assert unschedulable(schedule(world, pod("p3", cpu="3", memory="1Gi")))["p3"].code == "UnalignedNuma"


def test_a_pods_own_numa_policy_is_followed_on_a_node_without_one() -> None:
    world = world_of("n")
    records = schedule(world, pod("p", cpu="12", annotations={NUMA_SPEC: '{"numaTopologyPolicy":"Restricted"}'}))
    status = json.loads(given_to(records)["p"][STATUS])
    assert [zone["resources"]["cpu"] for zone in status["numaNodeResources"]] == ["6", "6"]


def test_the_nodes_bind_policy_allocates_cpus_to_every_pod() -> None:
    world = world_of("n", labels={BIND_LABEL: "SpreadByPCPUs"})
    records = schedule(world, pod("p", cpu="2"), pod("half", cpu="500m"))
    assert cpus_of(records) == {"p": "0,2"}
    assert unschedulable(records)["half"].code == "CpuNotInteger"


def test_a_pod_that_requires_cpus_waits_for_the_topology_of_a_node() -> None:
    world = World(believes_annotations=True)
    world.add_node(machine())
    records = schedule(world, bound_pod("p", 2))
    assert unschedulable(records)["p"].code == "InvalidCpuTopology"
    world.wait(20)
    world.read()
    assert world.cycles() == []
    world.observe(reported())
    world.read()
    assert cpus_of(world.cycles()) == {"p": "0-1"}


def test_without_a_topology_any_more_nothing_is_given() -> None:
    world = world_of("n")
    assert cpus_of(schedule(world, bound_pod("a", 2))) == {"a": "0-1"}
    world.observe(ObjectDeleted(resource=NODE_TOPOLOGIES, name="n", uid="nrt-n"))
    assert unschedulable(schedule(world, bound_pod("b", 2)))["b"].code == "InvalidCpuTopology"


def test_an_unreadable_annotation_rejects_the_pod_with_the_reason() -> None:
    for text, fault in (
        ("{", "it is no JSON: its end is missing"),
        ('{"preferredCPUBindPolicy": 3}', "preferredCPUBindPolicy: expected a string, got a whole number"),
    ):
        message = unschedulable(schedule(world_of("n"), pod("p", annotations={SPEC: text})))["p"].message
        assert f"annotation {SPEC} cannot be read: {fault}; correct or remove it" in message


def test_a_numa_node_that_an_annotation_lists_twice_counts_with_both_amounts() -> None:
    shares = [{"node": 0, "resources": {"cpu": "2"}}, {"node": 0, "resources": {"cpu": "1", "memory": "1Gi"}}]
    notes = {STATUS: json.dumps({"numaNodeResources": shares})}
    world = world_of("n")
    schedule(world, pod("p", on="n", phase="Running", annotations=notes))
    usage = fleet_of(world.indexed()).state(0).node.usage
    assert usage.zones == {0: {"cpu": 3000, "memory": 1 << 30}}


def test_equal_nodes_are_evaluated_once() -> None:
    world = world_of("a", "b", "c")
    schedule(world, pod("p", annotations={NUMA_SPEC: '{"numaTopologyPolicy":"Restricted"}'}, cpu="64"))
    numa_cache = fleet_of(world.indexed())
    assert numa_cache.state(0) is numa_cache.state(1) is numa_cache.state(2)


def test_nodes_that_filled_up_alike_share_their_state() -> None:
    world = world_of("a", "b", "c")
    placed = placements(schedule(world, *(bound_pod(f"p{number}", 2) for number in range(3))))
    assert sorted(placed.values()) == ["a", "b", "c"]
    numa_cache = fleet_of(world.indexed())
    full = numa_cache.state(0)
    assert full is numa_cache.state(1) is numa_cache.state(2)
    assert full is not numa_cache.state(0, numa_cache.allocations(0))


def fleet_of(cache: CycleInputs) -> NumaCache:
    (numa_cache,) = (
        plugin_cache for plugin, plugin_cache in cache.plugin_caches.items() if isinstance(plugin, NodeNUMAResource)
    )
    assert isinstance(numa_cache, NumaCache)
    return numa_cache


shapes = st.tuples(
    st.integers(1, 9),
    st.sampled_from(("", "FullPCPUs", "SpreadByPCPUs")),
    st.booleans(),
    st.sampled_from(("", "PCPULevel", "NUMANodeLevel")),
    st.sampled_from(("", "BestEffort", "Restricted", "SingleNUMANode")),
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("come"), shapes),
        st.tuples(st.just("go"), st.integers(0, 30)),
        st.tuples(st.just("refuse"), st.integers(0, 30)),
        st.tuples(st.just("topology"), st.sampled_from((2, 4))),
    ),
    max_size=25,
)


@settings(max_examples=examples(60), deadline=None)
@given(actions)
def test_no_cpu_is_held_twice_and_any_history_ends_as_reading_it_from_scratch(
    history: list[tuple[str, object]],
) -> None:
    world = world_of("a", "b")
    pods: dict[str, Pod] = {}
    for number, (action, detail) in enumerate(history):
        world.wait(11)
        if action == "come":
            assert isinstance(detail, tuple)
            cpus, bind_policy, required, exclusive, numa = detail
            notes = {NUMA_SPEC: json.dumps({"numaTopologyPolicy": numa})} if numa else {}
            one = bound_pod(f"p{number}", cpus, bind_policy, required=required, exclusive=exclusive, annotations=notes)
            pods[one.metadata.uid] = one
            world.add_pod(one)
            world.read()
        elif action == "go" and pods:
            assert isinstance(detail, int)
            uid = list(pods)[detail % len(pods)]
            del pods[uid]
            world.drop_pod(uid)
            world.read()
        elif action == "topology":
            assert isinstance(detail, int)
            world.observe(
                reported("a", annotations={"node.koordinator.sh/pod-cpu-allocs": "[]" if detail == 2 else ""})
            )
            world.read()
        records = world.cycles()
        if action == "refuse":
            for record in records:
                if isinstance(record.event, PodPlaced):
                    world.answer(record, "rejected")
            world.read()
        else:
            bind(world, list(pods.values()), records)
        check_disjoint(world.view)
        check_same_from_scratch(world)


def check_disjoint(view: SchedulerState) -> None:
    view.read()
    taken: dict[tuple[str, int], str] = {}
    for uid, pod_record in view.pods.items():
        allocated = pod_record.assignment()
        if allocated and allocated.allocation:
            for cpu in parse_cpus(json.loads(allocated.allocation[STATUS]).get("cpuset", "")):
                assert taken.setdefault((allocated.node, cpu), uid) == uid


def check_same_from_scratch(world: World) -> None:
    copy = SchedulerState()
    copy.restore(world.view.encode())
    anew = CycleInputs(copy, read_config(DEFAULT_PROFILE).profiles, believes_annotations=True)
    anew.settle()
    cache = world.indexed()
    cache.settle()
    before, after = fleet_of(cache), fleet_of(anew)
    for name, row in cache.table.rows.items():
        other = anew.table.rows[name]
        assert before.allocations(row) == after.allocations(other)
        assert before.state(row).node.usage.key() == after.state(other).node.usage.key()
    assert decide(anew, world.now_ns, 64) == decide(cache, world.now_ns, 64)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(shapes, min_size=2, max_size=12), st.sampled_from(("", "Restricted", "BestEffort", "SingleNUMANode")))
def test_a_cycle_of_many_pods_ends_as_cycles_of_one_pod(
    wishes: list[tuple[int, str, bool, str, str]], policy: str
) -> None:
    def decided(batch: int) -> dict[str, tuple[str, dict[str, str]]]:
        world = world_of("a", "b")
        world.observe(reported("c"))
        world.add_node(machine("c", labels={NUMA_LABEL: policy} if policy else None))
        for number, (cpus, bind_policy, required, exclusive, numa) in enumerate(wishes):
            notes = {NUMA_SPEC: json.dumps({"numaTopologyPolicy": numa})} if numa else {}
            if number % 3:
                one = bound_pod(
                    f"p{number}", cpus, bind_policy, required=required, exclusive=exclusive, annotations=notes
                )
            else:
                one = pod(f"p{number}", cpu=str(cpus), memory=f"{cpus}Gi", annotations=notes)
            world.add_pod(one)
        world.read()
        records = world.cycles(batch=batch)
        return {r.event.pod_uid: (r.event.node, r.event.annotations) for r in records if isinstance(r.event, PodPlaced)}

    assert decided(64) == decided(1)


def test_a_pod_without_cpus_preempts_pods_of_lower_priority_that_hold_cpus() -> None:
    world = world_of("n")
    for name, cpuset in (("low", "0-7"), ("lower", "8-15")):
        allocated = holding_pod(name, cpuset, "n")
        spec = msgspec.structs.replace(allocated.spec, priority=10 if name == "low" else 5)
        world.add_pod(msgspec.structs.replace(allocated, spec=spec))
    records = schedule(world, bound_pod("high", 4, "FullPCPUs", required=True, priority=100))
    assert unschedulable(records)["high"].code == "NotEnoughCpus"
    assert [record.event.pod_uid for record in records if isinstance(record.event, EvictionRequested)] == ["lower"]
    world.drop_pod("lower")
    world.wait(20)
    world.read()
    assert cpus_of(world.cycles()) == {"high": "8-11"}


def test_cpus_that_victims_leave_are_kept_for_the_pod_they_left_them_to() -> None:
    """The victim is gone, and the pod's backoff is not over: a lesser pod that would fit gets neither its room nor its CPUs."""
    world = world_of("n")
    for name, cpuset in (("low", "0-7"), ("lower", "8-15")):
        allocated = holding_pod(name, cpuset, "n")
        spec = msgspec.structs.replace(allocated.spec, priority=10 if name == "low" else 5)
        world.add_pod(msgspec.structs.replace(allocated, spec=spec))
    schedule(world, bound_pod("high", 4, "FullPCPUs", required=True, priority=100))
    world.drop_pod("lower")
    records = schedule(world, bound_pod("small", 6, "FullPCPUs", required=True, priority=50))
    assert unschedulable(records)["small"].code == "NotEnoughCpus", "4 of the 8 CPUs that are free are promised"
    records = schedule(world, bound_pod("fits", 4, "FullPCPUs", required=True, priority=50))
    assert cpus_of(records) == {"fits": "12-15"}
    world.wait(20)
    assert cpus_of(world.cycles()) == {"high": "8-11"}


def test_cpus_are_kept_from_the_same_cycle_on_and_while_the_victim_is_leaving() -> None:
    world = world_of("n")
    allocated = holding_pod("low", "0-7", "n")
    world.add_pod(msgspec.structs.replace(allocated, spec=msgspec.structs.replace(allocated.spec, priority=5)))
    for name, cpus, priority in (("high", 12, 100), ("mid", 4, 50)):
        world.add_pod(bound_pod(name, cpus, "FullPCPUs", required=True, priority=priority))
    world.read()
    records = world.cycle()
    assert unschedulable(records).keys() == {"high", "mid"}, (
        "8 CPUs are free; with the victim's, 12 are promised to the first"
    )
    world.wait(5)
    world.drop_pod("low")
    world.read()
    assert cpus_of(world.cycles()) == {"high": "0-11", "mid": "12-15"}


def test_a_refusal_is_recorded_in_full_however_many_others_the_process_has_met_before() -> None:
    world = world_of("n", labels={NUMA_LABEL: "Zebra"})
    world.read()
    cache = world.indexed()
    cache.settle()
    plugin = next(each for each in cache.profiles["koord-scheduler"].filters if isinstance(each, NodeNUMAResource))
    for number in range((1 << 14) + 2):
        if number % 1024 == 0:
            state = CycleTransaction(cache, world.now_ns).plugin_states[plugin]
        one = pod("x", annotations={SPEC: " " * number + "x"})  # the error names the byte at which JSON ends
        assert state.filter_at(PodClass(class_key(one), common_part(one)), 0)
    [decided] = cycles_of(schedule(world, pod("p", cpu="1")))
    [evaluated] = decided.classes
    assert [(each.code, each.detail) for each in evaluated.rejected] == [("UnknownNumaPolicy", "Zebra")]


def test_an_allocation_counts_only_where_the_scheduler_decided_it() -> None:  # fault 08
    world = World()
    world.observe(reported("n"))
    world.add_node(machine("n"))
    world.add_pod(holding_pod("liar", "0-15", "n"))
    records = schedule(world, bound_pod("honest", 4, "FullPCPUs", required=True))
    (cpus,) = (allocation_of(notes).cpus for notes in given_to(records).values())
    assert len(cpus) == 4, "CPUs that a pod claims for itself are free"


def test_a_decided_allocation_stays_when_the_annotation_of_the_pod_changes() -> None:
    world = World()
    world.observe(reported("n"))
    world.add_node(machine("n"))
    records = schedule(world, bound_pod("first", 12, "FullPCPUs", required=True))
    (held,) = (allocation_of(notes).cpus for notes in given_to(records).values())
    world.add_pod(holding_pod("first", "0", "n"))
    records = schedule(world, bound_pod("second", 4, "FullPCPUs", required=True))
    (cpus,) = (allocation_of(notes).cpus for notes in given_to(records).values())
    assert not held & cpus
