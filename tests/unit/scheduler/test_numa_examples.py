"""NodeNUMAResource and the topology manager: the worked examples 7 to 13 of spec/scheduler-core.md 4.11."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.plugins.node_numa_resource.amplification_ratio_annotation import amplified
from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import NumaNode, distribute
from services.scheduler.plugins.node_numa_resource.filter_score_reserve_on_one_node import NodeAdmission
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import node_options
from services.scheduler.plugins.node_numa_resource.node_usage import Allocation, Amounts, NodeUsage
from services.scheduler.plugins.node_numa_resource.pod_requirements import NodeRequest, PodRequirements
from services.scheduler.plugins.node_numa_resource.scoring_strategy import Strategies
from services.scheduler.plugins.registry import text
from shared.domain.cpu_set import cpu_list
from tests.support.numa_machines import BIND_LABEL, NUMA_LABEL, machine, reported, topology_of

GI = 1 << 30
LEAST = Strategies((("cpu", 1), ("memory", 1)), "LeastAllocated", "LeastAllocated")
MOST = LEAST._replace(of_zones="MostAllocated")


class Whole(NamedTuple):
    """A node's amounts as a whole."""

    allocatable: Amounts
    requested: Amounts


EMPTY = Whole({"cpu": 16000, "memory": 32 * GI}, {})


def numa_node(
    *allocated: Allocation,
    labels: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    ratio: str = "",
) -> NumaNode:
    annotations = {"node.koordinator.sh/resource-amplification-ratio": ratio} if ratio else None
    options = node_options(machine(labels=labels, annotations=annotations), topology_of(reported(annotations=notes)))
    return NumaNode(options, NodeUsage(options.topology, allocated))


def reasons(rejection: object) -> tuple[str, ...]:
    assert isinstance(rejection, Rejection)
    return tuple(text(*reason) for reason in rejection.reasons)


@pytest.mark.parametrize(("strategies", "numa"), [(LEAST, 1), (MOST, 0)])
def test_example_7_the_zone_is_chosen_by_the_numa_scoring_strategy(strategies: Strategies, numa: int) -> None:
    node = numa_node(Allocation(zones=((0, {"cpu": 4000, "memory": 4 * GI}),)), labels={NUMA_LABEL: "SingleNUMANode"})
    admission = NodeAdmission(PodRequirements({"cpu": 4000, "memory": 8 * GI}), node, strategies)
    affinity = admission.admit()
    assert not isinstance(affinity, Rejection)
    assert (affinity.mask, affinity.score) == (1 << numa, {0: 174, 1: 100}[numa])


def test_example_8_restricted_takes_both_zones_evenly_and_single_numa_node_refuses() -> None:
    requirements = PodRequirements({"cpu": 12000, "memory": 8 * GI})
    both = NodeAdmission(requirements, numa_node(labels={NUMA_LABEL: "Restricted"}), LEAST)
    assert both.filter(EMPTY) is None
    half = {"cpu": 6000, "memory": 4 * GI}
    assert both.reserve() == Allocation(zones=((0, half), (1, half)))
    single = NodeAdmission(requirements, numa_node(labels={NUMA_LABEL: "SingleNUMANode"}), LEAST)
    why = "Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]"
    assert reasons(single.filter(EMPTY)) == (why,)


def test_example_9_pods_of_one_zone_and_pods_of_several_keep_apart_when_the_pod_itself_has_a_policy() -> None:
    spanning = numa_node(Allocation(cpus=frozenset((0, 8))), labels={NUMA_LABEL: "SingleNUMANode"})
    own = PodRequirements({"cpu": 1000}, numa_policy="SingleNUMANode")
    assert isinstance(NodeAdmission(own, spanning, LEAST).filter(EMPTY), Rejection)
    assert (
        NodeAdmission(PodRequirements({"cpu": 1000}), spanning, LEAST).filter(EMPTY) is None
    )  # the node's policy alone excludes nobody

    within = numa_node(Allocation(cpus=frozenset((0, 1))))
    assert NodeAdmission(own, within, LEAST).filter(EMPTY) is None
    wide = PodRequirements({"cpu": 12000}, numa_policy="Restricted")
    assert isinstance(NodeAdmission(wide, within, LEAST).filter(EMPTY), Rejection)


def test_example_10_amounts_are_split_evenly_and_the_rest_goes_where_there_is_more_room() -> None:
    def request(size: int, *, binds: bool = False, name: str = "cpu") -> NodeRequest:
        amounts = {name: size}
        return NodeRequest(
            amounts, amounts, binds, size // 1000 if binds else 0, "FullPCPUs" if binds else "", binds, "", ""
        )

    room = {0: {"cpu": 2000, "memory": 9}, 1: {"cpu": 8000, "memory": 9}}
    assert distribute(request(5000), room, [0, 1], 2) == ({0: {"cpu": 2000}, 1: {"cpu": 3000}}, [])
    room = {0: {"cpu": 8000, "memory": 9}, 1: {"cpu": 8000, "memory": 9}}
    assert distribute(request(6000, binds=True), room, [0, 1], 2) == ({0: {"cpu": 2000}, 1: {"cpu": 4000}}, [])
    assert distribute(request(5, name="memory"), room, [0, 1], 2) == ({0: {"memory": 2}, 1: {"memory": 3}}, [])
    assert distribute(request(17000), room, [0, 1], 2)[1] == ["cpu"]


@pytest.mark.parametrize(("cpu", "binds", "passes"), [(12000, False, True), (8000, True, True), (9000, True, False)])
def test_example_11_amplified_cpu_is_compared_with_what_bound_pods_really_take(
    cpu: int, *, binds: bool, passes: bool
) -> None:
    node = numa_node(Allocation(cpus=frozenset((0, 1, 2, 3))), ratio='{"cpu":1.5}')
    requirements = PodRequirements({"cpu": cpu}, bind=binds, preferred="FullPCPUs" if binds else "")
    rejection = NodeAdmission(requirements, node, LEAST).filter(Whole({"cpu": 24000}, {"cpu": 10000}))
    assert (rejection is None) == passes
    if rejection:
        assert reasons(rejection) == ("Insufficient amplified cpu",)


def test_example_11_amplified_amounts_are_rounded_up() -> None:
    assert (amplified(1001, 1.33), amplified(77, 1.0), amplified(77, 0.5)) == (1332, 77, 77)


def test_example_12_without_a_policy_the_node_is_scored_as_a_whole() -> None:
    whole = Whole({"cpu": 16000, "memory": 32 * GI}, {"cpu": 4000, "memory": 8 * GI})
    assert NodeAdmission(PodRequirements({"cpu": 4000, "memory": 8 * GI}), numa_node(), LEAST).score(whole) == 50
    node = numa_node(Allocation(cpus=frozenset((0, 1))), ratio='{"cpu":2}')
    requirements = PodRequirements({"cpu": 4000, "memory": 8 * GI}, bind=True, preferred="FullPCPUs")
    assert (
        NodeAdmission(requirements, node, LEAST).score(whole._replace(allocatable={"cpu": 32000, "memory": 32 * GI}))
        == 53
    )


def test_example_13_cpus_of_kubelet_and_system_are_set_aside() -> None:
    notes = {
        "kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"static","reservedCPUs":"0-1"}',
        "node.koordinator.sh/pod-cpu-allocs": '[{"uid":"a","cpuset":"2-3","managedByKubelet":true},{"uid":"b","cpuset":"4-5"}]',
        "node.koordinator.sh/system-qos-resource": '{"cpuset":"14-15"}',
    }
    options = numa_node(notes=notes).options
    assert cpu_list(options.reserved) == "0-3,14-15"
    assert [zone.total["cpu"] for zone in options.zones] == [4000, 6000]


def test_an_unknown_numa_policy_is_rejected_with_its_name() -> None:
    rejection = NodeAdmission(PodRequirements({"cpu": 1}, numa_policy="Sometimes"), numa_node(), LEAST).filter(EMPTY)
    assert reasons(rejection) == ("unknown NUMA topology policy 'Sometimes'",)


def test_a_required_policy_of_the_pod_that_the_node_contradicts_is_refused() -> None:
    node = numa_node(labels={BIND_LABEL: "SpreadByPCPUs"})
    requirements = PodRequirements({"cpu": 2000}, bind=True, required="FullPCPUs", preferred="FullPCPUs")
    rejection = NodeAdmission(requirements, node, LEAST).filter(EMPTY)
    assert reasons(rejection) == ("node(s) cpu bind policy conflicts with pod's required cpu bind policy",)


@pytest.mark.parametrize(
    "text_", ["{", '{"detail":[{"id":999999999999}]}', '{"detail":[{"id":"x"}]}', "[]", "null", '{"detail":null}']
)
def test_a_cpu_topology_that_cannot_be_read_is_none(text_: str) -> None:
    notes = {"node.koordinator.sh/cpu-topology": text_}
    options = node_options(machine(), topology_of(reported(annotations=notes)))
    assert not options.topology.valid


@pytest.mark.parametrize("zone", ["node--1", "node-64", "node-999999999"])
def test_a_numa_node_with_an_absurd_number_is_refused_and_ends_nothing(zone: str) -> None:
    event = reported()
    event.object["zones"][1]["name"] = zone
    options = node_options(machine(labels={NUMA_LABEL: "Restricted"}), topology_of(event))
    node = NumaNode(options, NodeUsage(options.topology, ()))
    assert reasons(NodeAdmission(PodRequirements({"cpu": 1000}), node, LEAST).filter(EMPTY)) == (
        "node(s) missing NUMA resources",
    )


def test_a_machine_with_ten_thousand_cpus_and_sixteen_numa_nodes_is_evaluated_like_any_other() -> None:
    event = reported(zones=16, cpus=640, memory="9007199254740992")
    options = node_options(machine(labels={NUMA_LABEL: "Restricted"}), topology_of(event))
    node = NumaNode(options, NodeUsage(options.topology, ()))
    requirements = PodRequirements({"cpu": 1_000_000, "memory": 1 << 53}, bind=True, preferred="FullPCPUs")
    allocation = NodeAdmission(requirements, node, LEAST).reserve()
    assert isinstance(allocation, Allocation)
    assert (len(allocation.cpus), [numa for numa, _ in allocation.zones]) == (1000, [0, 1])


def test_what_cannot_be_read_of_a_report_is_named_with_the_refusal() -> None:
    notes = {"node.koordinator.sh/cpu-topology": "{"}
    options = node_options(machine(), topology_of(reported(annotations=notes)))
    rejection = NodeAdmission(
        PodRequirements({"cpu": 1000}, bind=True), NumaNode(options, NodeUsage(options.topology, ())), LEAST
    ).filter(EMPTY)
    assert isinstance(rejection, Rejection)
    assert "cpu-topology" in rejection.reasons[0].detail
