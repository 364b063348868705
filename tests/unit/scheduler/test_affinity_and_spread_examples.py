"""Worked examples of balance, images, affinity between pods and spread, as numbered in spec/scheduler-core.md 2.4-2.6."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cli.parity.runners.scheduler.stock import StockCluster
from services.scheduler.plugins.pod_topology_spread.domain_counts import ln
from tests.support.pods import written_pod

HOST = "kubernetes.io/hostname"
MIB = 1 << 20
Raw = dict[str, Any]


def raw_node(name: str, labels: Mapping[str, str] | None = None, **status: Any) -> Raw:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"} | status.pop("allocatable", {})
    return {
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "status": {"allocatable": allocatable, **status},
    }


def raw_pod(name: str, app: str = "", on: str = "", **spec: Any) -> Raw:
    labels = {"app": app} if app else {}
    return written_pod(name, namespace="d", labels=labels, metadata={"uid": name}, nodeName=on, **spec)


def cluster(nodes: Sequence[Raw], pods: Sequence[Raw] = (), **args: Any) -> StockCluster:
    return StockCluster({"nodes": nodes, "pods": pods, "pluginArgs": args})


def scores_of(world: StockCluster, plugin: str, incoming: Raw) -> dict[str, int] | str:
    with world.incoming(incoming) as pod:
        return pod.scores(plugin)


def requesting(**requests: str) -> Raw:
    return {"container": {"resources": {"requests": requests}}}


@pytest.mark.parametrize(
    ("resources", "requests", "score"),
    [
        pytest.param(("cpu", "memory"), {"cpu": "3", "memory": "2Gi"}, 75, id="2.4-1"),
        pytest.param(("cpu", "memory", "x"), {"cpu": "2", "memory": "2Gi", "x": "75"}, 79, id="2.4-2"),
        pytest.param(("cpu", "memory"), {"cpu": "4800m", "memory": "8Gi"}, 100, id="2.4-3"),
    ],
)
def test_balance(resources: tuple[str, ...], requests: Raw, score: int) -> None:
    args = {"resources": [{"name": name, "weight": 1} for name in resources]}
    world = cluster([raw_node("n", allocatable={"x": "100"})], NodeResourcesBalancedAllocation=args)
    incoming = raw_pod("p", **requesting(**requests))
    assert scores_of(world, "NodeResourcesBalancedAllocation", incoming) == {"n": score}


def test_an_image_counts_by_the_share_of_nodes_that_have_it() -> None:  # 2.4-7
    has: Raw = {"images": [{"names": ["reg/app:latest"], "sizeBytes": 500 * MIB}]}
    world = cluster([raw_node(f"n{number}", **(has if number < 2 else {})) for number in range(10)])
    scores = scores_of(world, "ImageLocality", raw_pod("p", container={"image": "reg/app"}))
    assert scores == {f"n{number}": 7 if number < 2 else 0 for number in range(10)}


def near(app: str, key: str = "zone") -> Raw:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def requires(kind: str, app: str, key: str = "zone") -> Raw:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [near(app, key)]}}}


ZONES = [raw_node("a1", {"zone": "a"}), raw_node("a2", {"zone": "a"}), raw_node("b1", {"zone": "b"}), raw_node("none")]


def failing(world: StockCluster, plugin: str, incoming: Raw) -> dict[str, str]:
    short = {"UnschedulableAndUnresolvable": "UU", "Unschedulable": "U"}
    with world.incoming(incoming) as pod:
        return {name: short[found["code"]] for name, found in pod.filtered(plugin)["fail"].items()}


@pytest.mark.parametrize(
    ("running", "incoming", "refused"),
    [
        pytest.param(
            [raw_pod("db", "db", "a1")], raw_pod("p", "web", **requires("podAffinity", "db")),
            {"b1": "UU", "none": "UU"}, id="2.5 required affinity",
        ),
        pytest.param([], raw_pod("p", "db", **requires("podAffinity", "db")), {"none": "UU"}, id="2.5 first of a group"),
        pytest.param(
            [], raw_pod("p", "web", **requires("podAffinity", "db")),
            {"a1": "UU", "a2": "UU", "b1": "UU", "none": "UU"}, id="2.5 not of the group",
        ),
        pytest.param(
            [raw_pod("web", "web", "a1")], raw_pod("p", "web", **requires("podAntiAffinity", "web", HOST)),
            {"a1": "U"}, id="2.5 required anti-affinity",
        ),
        pytest.param(
            [raw_pod("shy", "x", "a1", **requires("podAntiAffinity", "web"))], raw_pod("p", "web"),
            {"a1": "U", "a2": "U"}, id="2.5 anti-affinity of one that runs",
        ),
    ],
)  # fmt: skip
def test_affinity_between_pods_refuses(running: list[Raw], incoming: Raw, refused: dict[str, str]) -> None:
    assert failing(cluster(ZONES, running), "InterPodAffinity", incoming) == refused


@pytest.mark.parametrize(
    ("weights", "scores"),
    [((-10, 0, 30), [0, 25, 100]), ((5, 5), [0, 0]), ((0, 1, 3), [0, 33, 100])],
    ids=["2.5 raw -10 0 30", "2.5 raw 5 5", "2.5 raw 0 1 3"],
)
def test_affinity_between_pods_scores(weights: tuple[int, ...], scores: list[int]) -> None:
    nodes = [raw_node(f"n{number}") for number in range(len(weights))]
    running = [raw_pod(f"r{n}", f"app{n}", f"n{n}") for n in range(len(weights))]
    preferred: dict[str, list[Raw]] = {"podAffinity": [], "podAntiAffinity": []}
    for number, weight in enumerate(weights):
        if weight:
            term = {"weight": abs(weight), "podAffinityTerm": near(f"app{number}", HOST)}
            preferred["podAffinity" if weight > 0 else "podAntiAffinity"].append(term)
    affinity = {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms} for kind, terms in preferred.items()}
    world = cluster(nodes, running)
    found = scores_of(world, "InterPodAffinity", raw_pod("p", affinity=affinity))
    assert found == {f"n{number}": score for number, score in enumerate(scores)}


def spread(max_skew: int, key: str = "zone", **more: Any) -> Raw:
    hard = more.pop("hard", True)
    return {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }


def web(*places: str) -> list[Raw]:
    return [raw_pod(f"w{number}", "web", place) for number, place in enumerate(places)]


@pytest.mark.parametrize(
    ("app", "constraint", "refused"),
    [
        pytest.param("web", spread(2), {"a1": "U", "a2": "U", "none": "UU"}, id="2.6 counts 3 and 1"),
        pytest.param("web", spread(2, minDomains=3), {"a1": "U", "a2": "U", "none": "UU"}, id="2.6 minDomains"),
        pytest.param("x", spread(2), {"none": "UU"}, id="2.6 not one of its own"),
    ],
)
def test_spread_refuses(app: str, constraint: Raw, refused: dict[str, str]) -> None:
    world = cluster(ZONES, web("a1", "a1", "a2", "b1"))
    assert failing(world, "PodTopologySpread", raw_pod("p", app, topologySpreadConstraints=[constraint])) == refused


def test_spread_prefers_the_emptier_zone_and_leaves_nodes_without_one_at_0() -> None:  # 2.6
    world = cluster(ZONES, web("a1", "a1", "a2", "b1"))
    incoming = raw_pod("p", "web", topologySpreadConstraints=[spread(1, hard=False)])
    found = scores_of(world, "PodTopologySpread", incoming)
    assert found == {"a1": 25, "a2": 25, "b1": 100, "none": 0}


@pytest.mark.parametrize(
    ("host_skew", "raw"), [(1, 5), (3, 7)], ids=["2.6 two constraints", "2.6 maxSkew 3 on the host"]
)
def test_the_raw_score_of_two_constraints(host_skew: int, raw: int) -> None:
    weights = 2 * ln(2 + 2) + 1 * ln(5 + 2) + (host_skew - 1)
    assert round(weights) == raw
    # Five nodes in two zones; `a1` has 2 pods in its zone, one of them on it. `a0` is the emptiest but for `b`s.
    nodes = [raw_node("a0", {"zone": "a"}), raw_node("a1", {"zone": "a"})]
    nodes += [raw_node(f"b{number}", {"zone": "b"}) for number in range(3)]
    world = cluster(nodes, web("a0", "a1"))
    both = [spread(1, hard=False), spread(host_skew, HOST, hard=False)]
    found = scores_of(world, "PodTopologySpread", raw_pod("p", "web", topologySpreadConstraints=both))
    assert isinstance(found, dict)
    empty = host_skew - 1
    assert found["a1"] == 100 * (raw + empty - raw) // raw
    assert found["b0"] == 100


def test_without_any_pod_every_node_is_as_good() -> None:  # 2.6 raw 0 0 0
    world = cluster(ZONES[:3])
    incoming = raw_pod("p", "web", topologySpreadConstraints=[spread(1, hard=False)])
    assert scores_of(world, "PodTopologySpread", incoming) == {"a1": 100, "a2": 100, "b1": 100}
