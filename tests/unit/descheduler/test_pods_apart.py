"""Plugins that keep pods apart: RemovePodsViolatingInterPodAntiAffinity, RemovePodsViolatingTopologySpreadConstraint.

Source: spec/descheduler.md 1.8.
"""

from typing import Any

import pytest

from services.descheduler.configuration.read_configuration import read_configuration
from services.descheduler.framework import cycle
from services.descheduler.load_aware.measured_node import PodOnNode
from services.descheduler.plugins.topology_spread import Domain, SpreadPod, surplus
from shared.domain.component_config import BadConfig
from shared.kube.meta import Metadata
from shared.kube.node import Taint
from shared.kube.pod import (
    Affinity,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    RequiredNodeTerms,
    TopologySpreadConstraint,
)
from shared.kube.selectors import LabelSelector
from tests.unit.descheduler.small_cluster import APART, WEB, SmallCluster
from tests.unit.descheduler.test_sigs_plugins import SSD, config, victims

ANTI_AFFINITY = "RemovePodsViolatingInterPodAntiAffinity"
SPREAD = "RemovePodsViolatingTopologySpreadConstraint"
BY_ZONE = "topology.kubernetes.io/zone"


def apart(key: str = "kubernetes.io/hostname", **term: Any) -> Affinity:
    found = PodAffinityTerm(topology_key=key, label_selector=LabelSelector(match_labels=WEB), **term)
    return Affinity(pod_anti_affinity=PodAffinity(required=(found,)))


def spread(key: str = "kubernetes.io/hostname", action: str = "DoNotSchedule", **more: Any) -> dict[str, Any]:
    constraint = {"max_skew": 1, "label_selector": LabelSelector(match_labels=WEB), **more}
    return {
        "topology_spread_constraints": (
            TopologySpreadConstraint(topology_key=key, when_unsatisfiable=action, **constraint),
        )
    }


def cluster_of(kind: str, plugin: str, nodes: dict[str, str], args: str = "{}") -> SmallCluster:
    """Nodes with their zones."""
    cluster = SmallCluster(config(kind, plugin, args))
    for name, zone in nodes.items():
        cluster.node(name, labels={BY_ZONE: zone} if zone else {})
    return cluster


def test_of_two_pods_that_do_not_bear_each_other_the_less_important_leaves_alone() -> None:
    cluster = cluster_of("deschedule", ANTI_AFFINITY, {"a": "", "b": ""})
    cluster.pod("high", "a", labels=WEB, affinity=APART, priority=6000)
    cluster.pod("low", "a", labels=WEB, affinity=APART, priority=5000)
    assert victims(cluster) == ["low"]


def test_a_pod_that_matches_its_own_term_does_not_meet_itself() -> None:
    cluster = cluster_of("deschedule", ANTI_AFFINITY, {"a": "", "b": ""})
    cluster.pod("one", "a", labels=WEB, affinity=APART)
    cluster.pod("two", "b", labels=WEB, affinity=APART)
    assert victims(cluster) == []


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ({}, ["guard"]),
        ({"namespaces": ("other",)}, []),
        ({"namespace_selector": LabelSelector(match_labels={"team": "a"})}, ["guard"]),
        ({"namespace_selector": LabelSelector(match_labels={"team": "b"})}, []),
        ({"match_label_keys": ("version",)}, []),
        ({"mismatch_label_keys": ("version",)}, ["guard"]),
    ],
)
def test_a_pod_with_a_term_leaves_a_domain_of_pods_that_it_matches(term: dict[str, Any], expected: list[str]) -> None:
    """The other pod has no term, so that it stays."""
    cluster = cluster_of("deschedule", ANTI_AFFINITY, {"a": "x", "b": "x", "c": "y"})
    cluster.namespace("default", {"team": "a"})
    cluster.pod("web", "b", labels={**WEB, "version": "1"})
    cluster.pod("guard", "a", labels={"version": "2"}, affinity=apart(BY_ZONE, **term))
    case = cluster.cycle()
    moves = [(victim.pod.removeprefix("default/"), victim.destination) for victim in case.victims] if case else []
    assert moves == [(name, "c") for name in expected]


def test_a_pod_outside_of_the_chosen_namespaces_neither_leaves_nor_counts() -> None:
    cluster = cluster_of("deschedule", ANTI_AFFINITY, {"a": "", "b": ""}, "{namespaces: {exclude: [default]}}")
    cluster.pod("one", "a", labels=WEB, affinity=APART)
    cluster.pod("two", "a", labels=WEB, affinity=APART)
    assert victims(cluster) == []


def spread_cluster(args: str = "{}", **more: Any) -> SmallCluster:
    """Five pods on `a`, one on `b`, none on `c`."""
    cluster = cluster_of("balance", SPREAD, {"a": "", "b": "", "c": ""}, args)
    for number in range(5):
        cluster.pod(f"web-{number}", "a", labels=WEB, owner="web", priority=5000 + number, spec=spread(**more))
    cluster.pod("web-5", "b", labels=WEB, owner="web", spec=spread(**more))
    return cluster


def test_pods_leave_the_largest_domain_until_the_skew_is_allowed_the_least_important_first() -> None:
    cluster = spread_cluster()
    case = cluster.cycle()
    assert case is not None
    assert [(each.pod, each.destination) for each in case.victims] == [
        ("default/web-0", "c"), ("default/web-1", "b"), ("default/web-2", "c"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "more", "leaves"),
    [
        ("{}", {"max_skew": 5}, False),
        ("{}", {"action": "ScheduleAnyway"}, False),
        ("{constraints: [ScheduleAnyway]}", {"action": "ScheduleAnyway"}, True),
        ("{constraints: [ScheduleAnyway]}", {}, False),
        ("{}", {"label_selector": LabelSelector()}, False),
        ("{}", {"label_selector": LabelSelector(match_labels={"app": "other"})}, False),
        ("{labelSelector: {matchLabels: {app: other}}}", {}, False),
    ],
)
def test_constraints_count_that_the_arguments_name(args: str, more: dict[str, Any], leaves: bool) -> None:
    assert bool(victims(spread_cluster(args, **more))) is leaves


def test_nodes_that_the_constraint_does_not_count_are_no_empty_domains() -> None:
    """Without the policy the tainted node is an empty domain, and with it there is only one."""
    for policy, expected in ((None, 1), ("Honor", 0)):
        cluster = SmallCluster(config("balance", SPREAD, "{topologyBalanceNodeFit: false}"))
        cluster.node("a")
        cluster.node("tainted", taints=(Taint(key="x", effect="NoSchedule"),))
        for number in range(2):
            cluster.pod(f"web-{number}", "a", labels=WEB, owner="web", spec=spread(node_taints_policy=policy))
        case = cluster.cycle()
        assert (len(case.passed_over) if case else 0) == expected  # no destination: the taint is not tolerated


def test_a_pod_stays_that_fits_no_node_of_an_emptier_domain() -> None:
    required = NodeAffinity(required=RequiredNodeTerms(node_selector_terms=(SSD,)))
    cluster = SmallCluster(config("balance", SPREAD, "{}"))
    cluster.node("fast", labels={"disk": "ssd"})
    cluster.node("slow")
    more = spread(node_affinity_policy="Ignore")
    for number in range(3):
        cluster.pod(f"web-{number}", "fast", labels=WEB, affinity=Affinity(node_affinity=required), spec=more)
    assert victims(cluster) == []


@pytest.mark.parametrize(("most_excluded", "why"), [(100, "no destination"), (0, "violates the same")])
def test_a_destination_in_the_same_domain_is_none(
    most_excluded: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A soft constraint does not keep the scheduler from another node of the zone. The request excludes these nodes, unless
    there are too many to name; then the pod stays.
    """
    monkeypatch.setattr(cycle, "MOST_EXCLUDED", most_excluded)
    cluster = cluster_of("balance", SPREAD, {"a": "x", "a2": "x", "b": "y"}, "{constraints: [ScheduleAnyway]}")
    for number in range(4):
        cluster.pod(f"web-{number}", "a", labels=WEB, owner="web", spec=spread(BY_ZONE, "ScheduleAnyway"))
    cluster.pod("full", "b", cpu="9")
    case = cluster.cycle()
    assert case is not None
    assert all(victim.destination == "b" for victim in case.victims)
    assert case.passed_over
    assert all(why in each.why for each in case.passed_over)


@pytest.mark.parametrize(
    ("sizes", "max_skew", "expected"),
    [
        ([2, 3, 5, 5, 7, 8], 1, {"7": 2, "8": 3}),
        ([0, 3], 1, {"3": 1}),
        ([0, 0, 0, 2, 3], 1, {"3": 2, "2": 1}),
        ([1, 1, 4], 1, {"4": 2}),
        ([1, 2], 1, {}),
    ],
)
def test_the_surplus_of_domains(sizes: list[int], max_skew: int, expected: dict[str, int]) -> None:
    domains: list[Domain] = []
    for size in sizes:
        pods = [
            Pod(metadata=Metadata(name=f"{size}-{len(domains)}-{n}", uid=f"{size}-{len(domains)}-{n}"))
            for n in range(size)
        ]
        value = f"{size}-{len(domains)}"
        domains.append(
            Domain(value, [SpreadPod(PodOnNode(each, each.metadata.name, False, {}), value) for each in pods])
        )
    found: dict[str, int] = {}
    for each in surplus(domains, max_skew, sum(sizes) / len(sizes), []):
        value = each.node.partition("-")[0]
        found[value] = found.get(value, 0) + 1
    assert found == expected


@pytest.mark.parametrize(
    ("kind", "plugin", "args", "path"),
    [
        (
            "deschedule",
            ANTI_AFFINITY,
            "{labelSelector: {matchExpressions: [{key: a, operator: Is}]}}",
            ".labelSelector",
        ),
        ("balance", SPREAD, "{constraints: [DoNotSchedul]}", ".constraints[0]"),
        ("balance", SPREAD, "{topologyBalanceNodeFit: maybe}", ".topologyBalanceNodeFit"),
    ],
)
def test_bad_arguments_are_rejected_with_their_path(kind: str, plugin: str, args: str, path: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_configuration(config(kind, plugin, args))
    assert caught.value.path == f"profiles[0].pluginConfig[0].args{path}"
