"""Plugins of kubernetes-sigs/descheduler. Source: spec/descheduler.md 1.8."""

import pytest

from services.descheduler.configuration.read_configuration import read_configuration
from shared.domain.component_config import BadConfig
from shared.kube.node import Taint
from shared.kube.pod import Affinity, NodeAffinity, PreferredNodeTerm, RequiredNodeTerms
from shared.kube.selectors import NodeSelectorTerm, Requirement
from tests.unit.descheduler.small_cluster import SmallCluster

SSD = NodeSelectorTerm(match_expressions=(Requirement(key="disk", operator="In", values=("ssd",)),))
REQUIRED = Affinity(node_affinity=NodeAffinity(required=RequiredNodeTerms(node_selector_terms=(SSD,))))
PREFERRED = Affinity(node_affinity=NodeAffinity(preferred=(PreferredNodeTerm(weight=10, preference=SSD),)))


def config(kind: str, plugin: str, args: str) -> str:
    return (
        "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\ndeschedulingInterval: 10s\n"
        f"profiles: [{{plugins: {{{kind}: {{enabled: [{{name: {plugin}}}]}}}}, "
        f"pluginConfig: [{{name: {plugin}, args: {args}}}]}}]\n"
    )


def victims(cluster: SmallCluster) -> list[str]:
    case = cluster.cycle()
    return [victim.pod.removeprefix("default/") for victim in case.victims] if case else []


@pytest.mark.parametrize(
    ("kind", "affinity"),
    [
        ("requiredDuringSchedulingIgnoredDuringExecution", REQUIRED),
        ("preferredDuringSchedulingIgnoredDuringExecution", PREFERRED),
    ],
)
def test_a_pod_leaves_a_node_that_its_affinity_no_longer_selects(kind: str, affinity: Affinity) -> None:
    cluster = SmallCluster(config("deschedule", "RemovePodsViolatingNodeAffinity", f"{{nodeAffinityType: [{kind}]}}"))
    cluster.node("plain")
    cluster.node("fast", labels={"disk": "ssd"})
    cluster.pod("wrong", "plain", affinity=affinity)
    cluster.pod("right", "fast", affinity=affinity)
    cluster.pod("free", "plain")
    assert victims(cluster) == ["wrong"]


def test_a_pod_stays_where_no_node_is_as_it_requires() -> None:
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    cluster = SmallCluster(config("deschedule", "RemovePodsViolatingNodeAffinity", f"{{nodeAffinityType: [{kind}]}}"))
    for name in ("a", "b"):
        cluster.node(name)
    cluster.pod("wrong", "a", affinity=REQUIRED)
    assert victims(cluster) == []


@pytest.mark.parametrize(
    ("args", "effect", "expected"),
    [
        ("{}", "NoSchedule", ["p"]),
        ("{}", "PreferNoSchedule", []),
        ("{includePreferNoSchedule: true}", "PreferNoSchedule", ["p"]),
        ("{excludedTaints: [maintenance]}", "NoSchedule", []),
        ("{includedTaints: ['maintenance=yes']}", "NoSchedule", ["p"]),
        ("{includedTaints: ['maintenance=no']}", "NoSchedule", []),
        ("{}", "NoExecute", []),
    ],
)
def test_a_pod_leaves_a_node_whose_taint_it_does_not_tolerate(args: str, effect: str, expected: list[str]) -> None:
    cluster = SmallCluster(config("deschedule", "RemovePodsViolatingNodeTaints", args))
    cluster.node("tainted", taints=(Taint(key="maintenance", value="yes", effect=effect),))
    cluster.node("free")
    cluster.pod("p", "tainted")
    assert victims(cluster) == expected


def test_duplicates_spread_evenly_over_the_nodes() -> None:
    cluster = SmallCluster(config("balance", "RemoveDuplicates", "{}"))
    for name in ("a", "b", "c"):
        cluster.node(name)
    for number in range(5):
        cluster.pod(f"web-{number}", "a", owner="web")
    cluster.pod("single", "a", owner="other")
    assert victims(cluster) == ["web-2", "web-3", "web-4"]  # 5 pods on 3 nodes: 2 each


@pytest.mark.parametrize(
    ("plugin", "args", "path"),
    [
        ("RemovePodsViolatingNodeAffinity", "{}", "nodeAffinityType"),
        ("RemovePodsViolatingNodeAffinity", "{nodeAffinityType: [always]}", "nodeAffinityType[0]"),
        ("RemovePodsViolatingNodeTaints", "{namespaces: {include: [a], exclude: [b]}}", "namespaces"),
    ],
)
def test_bad_arguments_are_rejected_with_their_path(plugin: str, args: str, path: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_configuration(config("deschedule", plugin, args))
    assert caught.value.path == f"profiles[0].pluginConfig[0].args.{path}"
