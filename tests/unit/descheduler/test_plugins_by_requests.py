"""FragmentationAware and ScaleDownBinPack. Source: spec/descheduler.md 1.9; X20 and X21 of section 6."""

from math import inf

import pytest

from services.descheduler.configuration.read_configuration import read_configuration
from services.descheduler.framework.cycle import decide_cycle, plan_cycle
from services.descheduler.load_aware.pod_order import DELETION_COST
from services.descheduler.plugins.fragmentation_aware import deviation
from services.descheduler.plugins.scale_down_bin_pack import node_score
from services.descheduler.settings import DecisionSettings
from shared.domain.component_config import BadConfig
from shared.domain.move_destinations import DestinationsResponse
from shared.events.descheduling import EvictionCaseOpened
from shared.events.intents import FieldsDesired
from tests.unit.descheduler.load_aware_cluster import node, pod
from tests.unit.descheduler.small_cluster import SmallCluster

HEAD = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\ndeschedulingInterval: 10s\n"


def config(plugin: str, args: str) -> str:
    return (
        f"{HEAD}profiles: [{{plugins: {{balance: {{enabled: [{{name: {plugin}}}]}}}}, "
        f"pluginConfig: [{{name: {plugin}, args: {args}}}]}}]\n"
    )


def test_x20_the_gain_of_a_pod_is_what_it_takes_off_the_deviation() -> None:
    before, after = deviation([0.9, 0.3]), deviation([0.5, 0.25])
    assert (round(before, 6), round(after, 6), round(before - after, 6)) == (0.3, 0.125, 0.175)


@pytest.mark.parametrize(
    ("goes", "stays", "expected"),
    [((50, 50), (10, 10), 0.2), ((20, 20), (60, 60), 3.0), ((0, 0), (0, 0), 0.0), ((0, 0), (1, 1), inf)],
)
def test_x21_the_score_of_a_node(goes: tuple[int, int], stays: tuple[int, int], expected: float) -> None:
    there = node("n", 0, capacity={"cpu": 100, "memory": 100})
    pods = [
        pod(name, requests={"cpu": f"{cpu}m", "memory": str(memory)})
        for name, (cpu, memory) in (("goes", goes), ("stays", stays))
    ]
    score = node_score(there, [pods[1]], [pods[0]], {"cpu": 1.0, "memory": 1.0})
    assert score == pytest.approx(expected)


def test_a_fragmented_node_loses_the_pod_with_the_largest_gain_and_one_alone() -> None:
    cluster = SmallCluster(config("FragmentationAware", "{}"))
    for name in ("uneven", "empty"):
        cluster.node(name)
    for name, cpu in (("big", "4"), ("small", "1"), ("other", "3")):
        cluster.pod(name, "uneven", cpu=cpu)
    case = cluster.cycle()
    assert case is not None
    assert [(victim.pod, victim.destination) for victim in case.victims] == [("default/big", "empty")]
    assert case.causes[0].scope == "fragmentation"


def test_bin_packing_evicts_from_the_node_that_becomes_empty_first() -> None:
    cluster = SmallCluster(config("ScaleDownBinPack", "{strategy: EvictDirectly, maxPodsToEvict: 2}"))
    for name in ("a", "b", "c"):
        cluster.node(name)
    cluster.pod("a-1", "a", cpu="2")
    cluster.pod("a-2", "a", cpu="1")
    cluster.pod("b-1", "b", cpu="1")
    case = cluster.cycle()
    assert case is not None
    # All scores are 0, so the node with fewer pods comes first; on `a` the largest pod.
    assert [victim.pod for victim in case.victims] == ["default/b-1", "default/a-1"]


def costs_of(cluster: SmallCluster) -> dict[str, str]:
    """Returns pod -> the deletion cost that a cycle requests."""
    configuration = cluster.state.configuration
    assert configuration is not None
    plan = plan_cycle(cluster.state, configuration, DecisionSettings(), cluster.now_ns)
    drafts = decide_cycle(plan, DestinationsResponse(), configuration, DecisionSettings())
    assert not any(isinstance(draft.event, EvictionCaseOpened) for draft in drafts)
    desired = (draft.event for draft in drafts if isinstance(draft.event, FieldsDesired))
    return {event.name: event.patch["metadata"]["annotations"][DELETION_COST] for event in desired}


def test_bin_packing_that_only_calculates_writes_the_ranks_that_pods_do_not_have() -> None:
    cluster = SmallCluster(config("ScaleDownBinPack", "{}"))
    for name in ("a", "b"):
        cluster.node(name)
    cluster.pod("a-1", "a", cpu="1")
    cluster.pod("a-2", "a", cpu="2", annotations={DELETION_COST: "1"})
    cluster.pod("b-1", "b", cpu="1")
    cluster.pod("bare", "b", kind="")
    # `a` has nothing that stays. The largest pod of a node comes first; a bare pod is kept by the filter.
    assert costs_of(cluster) == {
        "default/a-2": "0",
        "default/a-1": "1",
        "default/b-1": "2",
        "default/bare": "2147483647",
    }
    cluster.pod("a-2", "a", cpu="2", annotations={DELETION_COST: "0"})
    cluster.pod("bare", "b", kind="", annotations={DELETION_COST: "2147483647"})
    assert sorted(costs_of(cluster)) == ["default/a-1", "default/b-1"]


def test_a_dry_run_writes_no_ranks() -> None:
    cluster = SmallCluster("dryRun: true\n" + config("ScaleDownBinPack", "{}"))
    for name in ("a", "b"):
        cluster.node(name)
    cluster.pod("a-1", "a")
    assert costs_of(cluster) == {}


@pytest.mark.parametrize(
    ("plugin", "args", "path"),
    [
        ("FragmentationAware", "{resources: [cpu, cpu]}", "resources"),
        ("FragmentationAware", "{imbalanceThreshold: -1}", "imbalanceThreshold"),
        ("ScaleDownBinPack", "{strategy: Sometimes}", "strategy"),
        ("ScaleDownBinPack", "{strategy: EvictDirectly}", "maxPodsToEvict"),
        ("ScaleDownBinPack", "{resourceWeights: {cpu: 0}}", "resourceWeights.cpu"),
    ],
)
def test_bad_arguments_are_rejected_with_their_path(plugin: str, args: str, path: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_configuration(config(plugin, args))
    assert caught.value.path == f"profiles[0].pluginConfig[0].args.{path}"
