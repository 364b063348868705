"""FragmentationAware and ScaleDownBinPack. Source: spec/descheduler.md 1.9; X20 and X21 of section 6."""

from math import inf

import pytest

from services.descheduler.configuration.read_configuration import read_configuration
from services.descheduler.plugins.fragmentation_aware import deviation
from services.descheduler.plugins.scale_down_bin_pack import node_score
from shared.domain.component_config import BadConfig
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


def test_bin_packing_that_only_calculates_evicts_nothing() -> None:
    cluster = SmallCluster(config("ScaleDownBinPack", "{}"))
    for name in ("a", "b"):
        cluster.node(name)
    cluster.pod("a-1", "a")
    assert cluster.cycle() is None


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
