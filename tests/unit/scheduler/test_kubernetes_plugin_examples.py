"""The worked examples of the stock plugins, by their number in spec/scheduler-core.md."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.framework.plugin_base import Plugin, make_plugin, normalized
from services.scheduler.plugins.node_ports.plugin import collides
from services.scheduler.plugins.registry import REGISTRY
from shared.domain.tolerations import tolerates
from shared.kube.node import Node, Taint
from shared.kube.pod import (
    Affinity,
    NodeAffinity,
    Pod,
    PreferredNodeTerm,
    RequiredNodeTerms,
    Toleration,
)
from shared.kube.selectors import NodeSelectorTerm, Requirement
from tests.support.scheduling_world import node, pod
from tests.unit.scheduler.plugin_harness import class_of

RAMP = {"requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}
SLOPE = {"requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]}}


def make(name: str, args: Mapping[str, Any] | None = None) -> Plugin:
    plugin = make_plugin(REGISTRY.specs[name], args or {}, "")
    assert isinstance(plugin, Plugin)
    return plugin


def table_of(nodes: Sequence[Node], running: Mapping[str, Pod] | None = None) -> NodeTable:
    table = NodeTable()
    for each in nodes:
        table.set_node(each.metadata.name, each)
    for name, runs in (running or {}).items():
        table.count(((table.row(name), class_of(runs), 1),))
    return table


def scores(plugin: Plugin, table: NodeTable, pod: Pod) -> list[int]:
    pod_class = class_of(pod)
    raw = plugin.new_state(CycleSnapshot(table), None, 0).score(pod_class, slice(0, table.size))
    assert raw is not None
    found: list[int] = normalized(raw, int(raw.max(initial=0)), plugin.normalize).tolist()
    return found


def passes(plugin: Plugin, table: NodeTable, pod: Pod) -> list[bool]:
    state = plugin.new_state(CycleSnapshot(table), None, 0)
    pod_class = class_of(pod)
    return [state.filter_at(pod_class, row) == 0 for row in range(table.size)]


def strategy(type_: str, cpu: int = 1, memory: int = 1, **more: Any) -> dict[str, Any]:
    resources = [{"name": name, "weight": weight} for name, weight in (("cpu", cpu), ("memory", memory)) if weight]
    return {"scoringStrategy": {"type": type_, "resources": resources, **more}}


@pytest.mark.parametrize(
    ("args", "score"),
    [
        pytest.param(strategy("LeastAllocated"), 67, id="2.3-1"),
        pytest.param(strategy("MostAllocated"), 32, id="2.3-2"),
        pytest.param(strategy("RequestedToCapacityRatio", 3, 1, **RAMP), 30, id="2.3-3"),
        pytest.param(strategy("RequestedToCapacityRatio", 1, 0, **SLOPE), 73, id="2.3-4"),
    ],
)
def test_allocation_is_scored_by_the_strategy(args: dict[str, Any], score: int) -> None:
    table = table_of([node("n")], {"n": pod("runs", cpu="600m", memory="2Gi")})
    assert scores(make("NodeResourcesFit", args), table, pod("p", cpu="500m", memory="1Gi")) == [score]


def test_a_pod_without_requests_is_scored_with_100m_and_200_mib_and_filtered_with_nothing() -> None:  # 2.3-5
    table = table_of([node("n"), node("full", cpu="0", memory="0")])
    plugin = make("NodeResourcesFit")
    assert scores(plugin, table, pod("p", cpu=None, memory=None)) == [97, 0]
    assert passes(plugin, table, pod("p", cpu=None, memory=None)) == [True, True]


def tainted(*counts: int) -> NodeTable:
    return table_of(
        [
            node(f"n{number}", taints=[Taint(key=f"k{i}", effect="PreferNoSchedule") for i in range(count)])
            for number, count in enumerate(counts)
        ]
    )


@pytest.mark.parametrize(
    ("counts", "expected"),
    [pytest.param((0, 1, 2), [100, 50, 0], id="2.4-4"), pytest.param((0, 0), [100, 100], id="2.4-5")],
)
def test_fewer_soft_taints_are_better(counts: tuple[int, ...], expected: list[int]) -> None:
    assert scores(make("TaintToleration"), tainted(*counts), pod("p")) == expected


@pytest.mark.parametrize(
    ("weights", "expected"),
    [pytest.param((0, 30, 70), [0, 42, 100], id="2.4-6"), pytest.param((0, 0), [0, 0], id="2.4-6 all 0")],
)
def test_preferred_terms_add_up_and_the_highest_is_a_hundred(weights: tuple[int, ...], expected: list[int]) -> None:
    table = table_of([node(f"n{number}", labels={"n": str(number)}) for number in range(len(weights))])
    terms = tuple(
        PreferredNodeTerm(weight=weight, preference=term("n", "In", str(number)))
        for number, weight in enumerate(weights)
        if weight
    )
    affinity = Affinity(node_affinity=NodeAffinity(preferred=terms))
    assert scores(make("NodeAffinity"), table, pod("p", affinity=affinity)) == expected


def term(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=(Requirement(key=key, operator=operator, values=values),))


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        (term("zone", "In", "a", "b"), [True, True, False]),
        (term("zone", "NotIn", "a"), [False, True, True]),
        (term("zone", "Exists"), [True, True, False]),
        (term("zone", "DoesNotExist"), [False, False, True]),
        (term("cores", "Gt", "8"), [False, True, False]),
        (term("cores", "Lt", "16"), [True, False, False]),
        (term("cores", "Gt", "many"), [False, False, False]),
        (term("zone", "Like", "a"), [False, False, False]),
        (NodeSelectorTerm(), [False, False, False]),
        (NodeSelectorTerm(match_fields=(Requirement(key="metadata.name", operator="In", values=("n2", "gone")),)),
         [False, False, True]),
        (NodeSelectorTerm(match_fields=(Requirement(key="metadata.name", operator="NotIn", values=("n2",)),)),
         [True, True, False]),
        (NodeSelectorTerm(match_fields=(Requirement(key="metadata.uid", operator="In", values=("n2",)),)),
         [False, False, False]),
    ],
)  # fmt: skip
def test_a_required_term_matches_by_labels_and_by_name(required: NodeSelectorTerm, expected: list[bool]) -> None:
    table = table_of(
        [
            node("n0", labels={"zone": "a", "cores": "8"}),
            node("n1", labels={"zone": "b", "cores": "16"}),
            node("n2", labels={"cores": "x"}),
        ]
    )
    affinity = Affinity(node_affinity=NodeAffinity(required=RequiredNodeTerms(node_selector_terms=(required,))))
    assert passes(make("NodeAffinity"), table, pod("p", affinity=affinity)) == expected


def test_the_selector_and_one_of_the_terms_must_hold() -> None:
    table = table_of(
        [node("n0", labels={"a": "1", "b": "1"}), node("n1", labels={"a": "1"}), node("n2", labels={"b": "1"})]
    )
    terms = (term("b", "Exists"), term("c", "Exists"))
    affinity = Affinity(node_affinity=NodeAffinity(required=RequiredNodeTerms(node_selector_terms=terms)))
    assert passes(make("NodeAffinity"), table, pod("p", selector={"a": "1"}, affinity=affinity)) == [
        True, False, False,
    ]  # fmt: skip


def test_what_is_remembered_of_node_objects_follows_their_changes() -> None:
    table = table_of([node(f"n{number}", labels={"zone": "a"}) for number in range(40)])
    plugin, selecting = make("NodeAffinity"), pod("p", selector={"zone": "a"})
    assert all(passes(plugin, table, selecting))
    table.set_node("n7", node("n7", labels={"zone": "b"}))
    assert [row for row, passed in enumerate(passes(plugin, table, selecting)) if not passed] == [7]
    for number in range(20):
        table.set_node(f"n{number}", node(f"n{number}", labels={"zone": "c"}))
    table.set_node("n40", node("n40"))
    assert passes(plugin, table, selecting) == [False] * 20 + [True] * 20 + [False]


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="k", operator="Equal", value="v", effect="NoSchedule"), True),
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", value="other"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="k", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="k", operator="Like", value="v"), False),
    ],
)
def test_a_toleration_covers_a_taint_by_effect_key_and_value(toleration: Toleration, *, expected: bool) -> None:
    assert tolerates(toleration, Taint(key="k", value="v", effect="NoSchedule")) is expected


def test_a_cordoned_node_takes_only_pods_that_tolerate_it() -> None:
    table = table_of([node("n", unschedulable=True)])
    plugin = make("NodeUnschedulable")
    assert passes(plugin, table, pod("p")) == [False]
    tolerant = Toleration(key="node.kubernetes.io/unschedulable", operator="Exists", effect="NoSchedule")
    assert passes(plugin, table, pod("p", tolerations=(tolerant,))) == [True]


@pytest.mark.parametrize(
    ("requested", "held", "expected"),
    [
        (("0.0.0.0", "TCP", 80), ("0.0.0.0", "TCP", 80), True),
        (("0.0.0.0", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("0.0.0.0", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False),
        (("0.0.0.0", "TCP", 80), ("0.0.0.0", "UDP", 80), False),
        (("0.0.0.0", "TCP", 80), ("0.0.0.0", "TCP", 81), False),
    ],
)
def test_host_ports_collide_by_address_protocol_and_number(
    requested: tuple[str, str, int], held: tuple[str, str, int], *, expected: bool
) -> None:
    assert collides((requested,), (held,)) is expected


def test_extended_resources_can_be_left_to_an_extender_but_native_ones_cannot() -> None:
    table = table_of([node("n")])
    args = {"ignoredResources": ["a.example/x", "cpu"], "ignoredResourceGroups": ["b.example", "kubernetes.io"]}
    plugin = make("NodeResourcesFit", args)
    assert passes(plugin, table, pod("p", extra={"a.example/x": "1", "b.example/y": "1"})) == [True]
    assert passes(plugin, table, pod("p", extra={"a.example/z": "1"})) == [False]
    assert passes(plugin, table, pod("p", cpu="99")) == [False]
    assert passes(plugin, table, pod("p", extra={"kubernetes.io/batch-cpu": "1"})) == [False]
