"""Gangs gather in network domains: the spec's worked examples through whole cycles, returning members, and refusals."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.explain.why_pod_waits_now import pending_status
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from shared.domain import gang
from shared.domain.network_topology import INDEX, SELECTOR
from shared.events import RecordedEvent
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.scheduling import CycleDecided, PodPlaced
from shared.kube.pod import Pod
from shared.kube.resource_names import NETWORK_TOPOLOGIES, POD_GROUPS
from tests.support.hypothesis_examples import examples
from tests.support.scheduling_world import World, node, placements, pod, unschedulable, use
from tests.unit.scheduler.network_worlds import RACK, SPINE, TREE, network_world

AWARE = DEFAULT_PROFILE.replace(
    "  pluginConfig:\n", "  pluginConfig:\n  - {name: Coscheduling, args: {awareNetworkTopology: true}}\n"
)
TWO_PER_CPU = {"n1": "4", "n2": "2", "n3": "3", "n4": "5", "n5": "3"}
"""Node -> cpus: as many pods of one cpu as the worked examples have slots."""


def world_of(cpus: dict[str, str]) -> World:
    world = network_world(cpus)
    use(world, AWARE)
    return world


def spec(*rules: tuple[str, str], **multiples: int) -> str:
    found: list[dict[str, Any]] = [{"layer": layer, "strategy": strategy} for layer, strategy in rules]
    found += [{"layer": layer, "podCountMultiple": multiple} for layer, multiple in multiples.items()]
    return json.dumps({"gatherStrategy": found})


def pod_group(world: World, name: str, minimum: int, topology: str, **annotations: str) -> None:
    annotations |= {gang.TOPOLOGY: topology} if topology else {}
    body = {"metadata": {"name": name, "namespace": "d", "annotations": annotations}, "spec": {"minMember": minimum}}
    world.observe(ObjectObserved(resource=POD_GROUPS, name=f"d/{name}", uid=name, object=body))


def member(group: str, name: str, cpu: str = "1", **more: Any) -> Pod:
    return pod(name, cpu=cpu, memory=None, labels={gang.POD_GROUP_LABEL: group}, **more)


def job(world: World, size: int, topology: str, *, minimum: int = 0, **more: Any) -> None:
    pod_group(world, "job", minimum or size, topology)
    for number in range(size):
        world.add_pod(member("job", f"p{number:02}", **more))
    world.read()


def by_node(records: list[RecordedEvent]) -> dict[str, int]:
    return dict(sorted(Counter(placements(records).values()).items()))


@pytest.mark.parametrize(
    ("cpus", "size", "topology", "expected"),
    [
        pytest.param({**TWO_PER_CPU, "n4": "8"}, 6, spec(("spine", "MustGather")), {"n4": 6}, id="1"),
        pytest.param(TWO_PER_CPU, 6, spec(("spine", "MustGather")), {"n1": 4, "n2": 2}, id="2"),
        pytest.param(TWO_PER_CPU, 9, spec(("spine", "MustGather")), {"n1": 4, "n2": 2, "n3": 3}, id="3"),
        pytest.param(TWO_PER_CPU, 12, spec(("spine", "PreferGather")), {"n1": 4, "n2": 2, "n3": 3, "n4": 3}, id="4"),
        pytest.param(TWO_PER_CPU, 8, spec(("spine", "MustGather"), rack=4), {"n4": 5, "n5": 3}, id="5"),
        pytest.param(
            TWO_PER_CPU,
            8,
            spec(("spine", "MustGather"), NodeTopologyLayer=2),
            {"n1": 4, "n2": 2, "n3": 2},
            id="7",
        ),
    ],
)
def test_worked_examples_are_placed_in_one_cycle(
    cpus: dict[str, str], size: int, topology: str, expected: dict[str, int]
) -> None:
    world = world_of(cpus)
    job(world, size, topology)
    records = world.cycle()
    assert by_node(records) == expected
    assert len([each for each in records if isinstance(each.event, CycleDecided)]) == 1
    assert world.cycles() == []


def test_worked_example_6_gathers_near_pods_with_the_same_selector() -> None:
    world = world_of(TWO_PER_CPU)
    near = {SELECTOR: "training"}
    world.add_pod(pod("other", cpu=None, memory=None, on="n4", phase="Running", annotations=near))
    job(world, 6, spec(("spine", "MustGather")), annotations=near)
    assert by_node(world.cycle()) == {"n4": 5, "n5": 1}


def test_a_gang_that_no_domain_holds_is_refused_with_the_nearest_one() -> None:
    world = world_of(TWO_PER_CPU)
    job(world, 9, spec(("rack", "MustGather")))
    records = world.cycle()
    assert not placements(records)
    refused = unschedulable(records)
    assert refused["p00"].code == "NetworkDomainTooSmall"
    words = "5 in no rack with capacity for 9 pods: the nearest is rack/R3 with 8"
    assert refused["p00"].message == f"0/5 nodes are available: {words}."
    assert refused["p01"].code == "UnitNotPlaced"
    assert refused["p01"].message == (
        'GangGroup "d/job" gets rejected due to member Pod "d/p00" is unschedulable with reason '
        f'"0/5 nodes are available: {words}.", alreadyWaitForBound: 8'
    )
    world.add_node(node("n6", cpu="1", labels={SPINE: "S2", RACK: "R3"}))
    world.read()
    world.wait(60)
    assert by_node(world.cycles()) == {"n4": 5, "n5": 3, "n6": 1}, "a new node in the nearest domain makes it fit"


def test_multiples_are_named_where_they_refuse_a_gang() -> None:
    world = world_of(TWO_PER_CPU)
    job(world, 6, spec(("spine", "MustGather"), rack=4))
    assert "counted by multiples (rack by 4)" in unschedulable(world.cycle())["p00"].message


@pytest.mark.parametrize(
    ("topology", "is_there", "words"),
    [
        (spec(("pod", "MustGather")), True, "the ClusterNetworkTopology has no layer pod"),
        (spec(("rack", "MustGather")), False, "there is no ClusterNetworkTopology default"),
    ],
)
def test_a_gang_waits_for_the_layers_that_it_requires(topology: str, is_there: bool, words: str) -> None:
    world = world_of(TWO_PER_CPU)
    if not is_there:
        world.observe(ObjectDeleted(resource=NETWORK_TOPOLOGIES, name="default", uid="uid-default"))
    job(world, 2, topology)
    refused = unschedulable(world.cycle())["p00"]
    assert refused.code == "NetworkTopologyUnknown"
    assert words in refused.message
    status = pending_status(world.indexed(), "d/p00", world.now_ns)
    assert status is not None


def test_without_awareness_the_wishes_of_a_gang_restrict_no_node() -> None:
    world = network_world(TWO_PER_CPU)
    job(world, 9, spec(("rack", "MustGather")))
    assert len(placements(world.cycle())) == 9


def test_members_are_dealt_in_the_order_of_their_index() -> None:
    world = world_of(TWO_PER_CPU)
    pod_group(world, "job", 6, spec(("rack", "MustGather")))
    for name, index in (("a", "5"), ("b", "x"), ("c", "1"), ("d", "0"), ("e", "4"), ("f", "3")):
        world.add_pod(member("job", name, annotations={INDEX: index}))
    world.read()
    assert placements(world.cycle()) == {"d": "n1", "c": "n1", "f": "n1", "e": "n1", "a": "n2", "b": "n2"}


def test_more_pods_than_the_minimum_are_placed_as_far_as_one_domain_holds_them() -> None:
    world = world_of(TWO_PER_CPU)
    job(world, 9, spec(("rack", "MustGather")), minimum=3)
    records = world.cycle()
    assert by_node(records) == {"n4": 5, "n5": 3}
    assert unschedulable(records).keys() == {"p08"}
    annotated = [each.event.annotations for each in records if isinstance(each.event, PodPlaced)]
    assert [each.get(gang.BIND_COUNT[0]) for each in annotated] == ["3"] * 3 + [None] * 5


def run(world: World, records: list[RecordedEvent]) -> None:
    """Observes every placed pod on its node."""
    for uid, on in placements(records).items():
        world.add_pod(member("job", uid, on=on, phase="Running"))
    world.read()


def test_members_that_are_created_again_return_to_the_domain_of_their_gang() -> None:
    world = world_of(TWO_PER_CPU)
    job(world, 6, spec(("rack", "MustGather")))
    run(world, world.cycle())
    for uid in ("p00", "p05"):
        world.drop_pod(uid)
    world.add_pod(member("job", "again"))
    world.read()
    assert placements(world.cycles())["again"] in ("n1", "n2"), "not on the nodes of R3, which are empty"
    world.add_pod(pod("filler", cpu="1", memory=None, on="n1", phase="Running"))
    world.add_pod(pod("filler2", cpu="1", memory=None, on="n2", phase="Running"))
    world.add_pod(member("job", "more"))
    world.read()
    refused = unschedulable(world.cycles())["more"]
    assert "in no rack with capacity for 1 pods: its gang is in rack/R1 with 0" in refused.message


def test_members_return_near_their_gang_without_a_required_layer() -> None:
    world = world_of(TWO_PER_CPU)
    job(world, 6, spec(("rack", "PreferGather")))
    run(world, world.cycle())
    world.drop_pod("p05")
    world.add_pod(member("job", "again"))
    world.read()
    assert placements(world.cycles())["again"] in ("n1", "n2")


def test_a_launcher_that_fits_on_few_nodes_gathers_with_its_workers() -> None:
    world = world_of({**TWO_PER_CPU, "n4": "8"})
    groups = {gang.GROUPS: '["d/launcher", "d/workers"]'}
    pod_group(world, "launcher", 1, spec(("rack", "MustGather")), **groups)
    pod_group(world, "workers", 4, "", **groups)
    world.add_pod(member("launcher", "a-launcher", cpu="6"))
    for number in range(4):
        world.add_pod(member("workers", f"w{number}"))
    world.read()
    placed = placements(world.cycle())
    assert placed["a-launcher"] == "n4"
    assert set(placed.values()) == {"n4", "n5"}
    assert len(placed) == 5


def test_nodes_that_take_fewer_pods_than_their_capacity_are_counted_as_they_are() -> None:
    """Host ports admit one pod a node, whatever is free."""
    world = world_of({**TWO_PER_CPU, "n3": "4"})
    job(world, 2, spec(("rack", "MustGather")), ports=(80,))
    assert by_node(world.cycle()) in ({"n1": 1, "n2": 1}, {"n4": 1, "n5": 1})
    world = world_of(TWO_PER_CPU)
    job(world, 3, spec(("rack", "MustGather")), ports=(80,))
    assert not placements(world.cycle())


JOBS = st.lists(
    st.tuples(
        st.integers(1, 7),
        st.sampled_from([("rack", "MustGather"), ("spine", "MustGather"), ("rack", "PreferGather"), ("node", "x")]),
        st.sampled_from([{}, {"rack": 2}, {"NodeTopologyLayer": 2}]),
        st.sampled_from(["1", "2"]),
        st.sampled_from([(), (80,)]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(40), deadline=None)
@given(jobs=JOBS, plain=st.integers(0, 4))
def test_a_batch_of_gangs_is_placed_as_one_gang_a_cycle(jobs: list[Any], plain: int) -> None:
    outcomes = []
    for batch in (1, 256):
        world = world_of(TWO_PER_CPU)
        for number, (size, rule, multiples, cpu, ports, is_elastic) in enumerate(jobs):
            name = f"g{number}"
            pod_group(world, name, 1 if is_elastic else size, spec(rule, **multiples))
            for each in range(size):
                world.add_pod(member(name, f"{name}-{each}", cpu=cpu, ports=ports))
        for number in range(plain):
            world.add_pod(pod(f"plain{number}", cpu="1", memory=None))
        world.read()
        records = world.cycles(batch)
        outcomes.append((placements(records), {uid: each.message for uid, each in unschedulable(records).items()}))
        taken: Counter[str] = Counter()
        cpus = {f"g{number}": int(cpu) for number, (_, _, _, cpu, _, _) in enumerate(jobs)}
        for uid, on in placements(records).items():
            taken[on] += cpus.get(uid.partition("-")[0], 1)
        assert all(taken[name] <= int(TWO_PER_CPU[name]) for name in taken)
        for number, (size, rule, _, _, _, is_elastic) in enumerate(jobs):
            nodes = [on for uid, on in placements(records).items() if uid.startswith(f"g{number}-")]
            assert is_elastic or len(nodes) in (0, size), "all of a gang or none"
            if rule[1] == "MustGather":
                assert len({TREE[on][rule[0] == "rack"] for on in nodes}) <= 1, "one domain"
    assert outcomes[0] == outcomes[1]
