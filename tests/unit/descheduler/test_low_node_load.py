"""The worked examples of LowNodeLoad. Source: spec/descheduler.md 6, X1 to X13."""

import numpy as np
import pytest

from services.descheduler.load_aware.anomaly_detector import Detector
from services.descheduler.load_aware.arguments import read_args
from services.descheduler.load_aware.balance import node_scores, prod_budget
from services.descheduler.load_aware.classification import NodeClass, classify
from services.descheduler.load_aware.pod_order import order_key, usage_score
from services.descheduler.load_aware.thresholds import completed, thresholds
from services.descheduler.state.measured_nodes import pod_on_node
from shared.domain.component_config import BadConfig
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.pod import Pod, PodSpec, PodStatus
from tests.unit.descheduler.load_aware_cluster import CAPACITY, GIB, NOW_NS, args, node, pod, run

LOW, HIGH = {"cpu": 45, "memory": 55}, {"cpu": 75, "memory": 80}


@pytest.mark.parametrize(
    ("percent", "capacity", "expected"),
    [(65, 96_000, 62_400), (29, 96_000, 27_839), (58, 96_000, 55_679), (80, 128 * GIB, 109_951_162_777)],
)
def test_x1_thresholds_are_truncated_doubles(percent: float, capacity: int, expected: int) -> None:
    pool = args(lowThresholds={"memory": percent}, highThresholds={"memory": percent}).pools[0]
    found = thresholds(completed(pool), pool, np.array([[capacity]]), np.array([[0]]), np.array([[0]]))
    assert found.high.tolist() == [[expected]]


def test_x2_classes_by_absolute_thresholds() -> None:
    nodes = [
        node("a", 14_400, 60 * GIB),
        node("b", 14_401, 60 * GIB),
        node("c", 24_000, 60 * GIB),
        node("d", 24_001, 10 * GIB),
        node("e", 10_000, 10 * GIB, unschedulable=True),
        node("f", 0, age_s=180),
    ]
    given = args(lowThresholds=LOW, highThresholds=HIGH)
    found = classify(nodes, given.pools[0], given.expiration_ns, NOW_NS)
    assert dict(zip((each.name for each in found.nodes), found.classes, strict=True)) == {
        "a": NodeClass.BOTH_LOW,
        "b": NodeClass.PROD_LOW,
        "c": NodeClass.PROD_LOW,
        "d": NodeClass.HIGH,
        "e": NodeClass.APPROPRIATE,
    }
    assert found.thresholds.low[0].tolist() == [14_400, 75_591_424_409]
    assert found.thresholds.high[0].tolist() == [24_000, 109_951_162_777]


def test_x3_prod_thresholds() -> None:
    prod = pod("prod")
    nodes = [
        node("g", 12_000, pods=[(prod, 9_600, 0)]),
        node("h", 20_000, pods=[(prod, 16_001, 0)]),
        node("i", 14_000, pods=[(prod, 12_000, 0)]),
        node("j", 25_000, pods=[(prod, 20_000, 0)]),
    ]
    given = args(lowThresholds=LOW, highThresholds=HIGH, prodHighThresholds={"cpu": 50}, prodLowThresholds={"cpu": 30})
    found = classify(nodes, given.pools[0], given.expiration_ns, NOW_NS)
    assert found.classes == (NodeClass.BOTH_LOW, NodeClass.PROD_HIGH, NodeClass.LOW, NodeClass.HIGH)


def test_x4_thresholds_are_deviations_from_the_average() -> None:
    given = args(useDeviationThresholds=True, lowThresholds={"cpu": 15}, highThresholds={"cpu": 15})
    nodes = [node("a", 8_000), node("b", 16_000), node("c", 27_200)]
    found = classify(nodes, given.pools[0], given.expiration_ns, NOW_NS)
    assert found.thresholds.low[0].tolist() == [12_266, CAPACITY["memory"]]
    assert found.thresholds.high[0].tolist() == [21_866, CAPACITY["memory"]]
    # Without prod thresholds the middle node is low in its prod usage.
    assert found.classes == (NodeClass.BOTH_LOW, NodeClass.PROD_LOW, NodeClass.HIGH)


def test_x5_a_high_threshold_without_a_low_one_is_overwritten() -> None:
    given = args(highThresholds={"cpu": 70, "memory": 80}, lowThresholds={"cpu": 40})
    found = classify([node("a", 20_000, 121 * GIB)], given.pools[0], given.expiration_ns, NOW_NS)
    assert found.classes == (NodeClass.PROD_LOW,)
    given = args(highThresholds={"cpu": 70}, lowThresholds={"cpu": 40, "memory": 50})
    found = classify([node("a", 16_000, 70 * GIB)], given.pools[0], given.expiration_ns, NOW_NS)
    assert found.classes == (NodeClass.HIGH,)


@pytest.mark.parametrize(("weights", "expected"), [((1, 1), [675, 829]), ((3, 1), [762, 814])])
def test_x6_the_order_of_sources(weights: tuple[int, int], expected: list[int]) -> None:
    usage = np.array([[27_200, 64 * GIB, 9], [25_600, 110 * GIB, 9]])
    capacity = np.array([[32_000, 128 * GIB, 110]] * 2)
    given = {"cpu": weights[0], "memory": weights[1]}
    assert node_scores(usage, capacity, ("cpu", "memory", "pods"), given) == expected


def test_x7_a_pod_that_just_covers_the_excess_goes_first() -> None:
    scores = {used: usage_score({"cpu": used}, {"cpu": 3200}, {"cpu": 1}) for used in (1000, 2400, 3200, 3600, 8000)}
    assert [round(score, 4) for score in scores.values()] == [0.3125, 0.75, 2.0, 1.8889, 1.4]
    pods = [pod(str(used)) for used in scores]
    usage = {each.key: {"cpu": int(each.pod.metadata.name)} for each in pods}
    pods.sort(key=order_key(usage, {"cpu": 3200}, {"cpu": 1}))
    assert [each.pod.metadata.name for each in pods] == ["3200", "3600", "8000", "2400", "1000"]


def test_x8_the_whole_order_of_pods() -> None:
    def labelled(name: str, qos: str, priority: int | None, kubernetes: str, cost: str = "") -> Pod:
        annotations = {"scheduling.koordinator.sh/eviction-cost": cost} if cost else None
        labels = {"koordinator.sh/qosClass": qos} if qos else None
        return Pod(
            metadata=Metadata(name=name, namespace="default", labels=labels, annotations=annotations),
            spec=PodSpec(priority=priority),
            status=PodStatus(phase="Running", qos_class=kubernetes),
        )

    pods = [
        labelled("A", "LS", 9500, "Burstable"),
        labelled("B", "BE", 5500, "BestEffort"),
        labelled("C", "BE", 5500, "BestEffort", "-10"),
        labelled("D", "BE", 5100, "BestEffort"),
        labelled("E", "", 0, "Guaranteed"),
    ]
    there = [pod_on_node(each) for each in pods]
    usage = {f"default/{name}": {"cpu": used} for name, used in (("A", 3200), ("B", 1000), ("C", 500), ("D", 200))}
    there.sort(key=order_key(usage, {"cpu": 3200}, {"cpu": 1}))
    assert [each.pod.metadata.name for each in there] == ["D", "C", "B", "E", "A"]


def test_x9_evictions_stop_once_the_node_is_no_longer_overloaded() -> None:
    pods = [(pod(name), used, 2 * GIB) for name, used in (("a", 1000), ("b", 2400), ("c", 3200), ("d", 3600))]
    nodes = [node("hot", 27_200, 20 * GIB, pods), node("middle", 20_000, 100 * GIB), node("cold", 1_000, 2 * GIB)]
    _, evictor = run(args(lowThresholds=LOW, highThresholds=HIGH, nodeFit=False), nodes)
    assert evictor.evicted == ["c"]
    assert evictor.reasons == ["node is overutilized, node cpu usage(85.00%)>threshold(75.00%)"]


def test_x10_evictions_stop_once_the_budget_of_one_resource_is_used_up() -> None:
    first = [(pod("a1"), 2_000, GIB), (pod("a2"), 1_500, GIB), (pod("a3"), 1_000, GIB)]
    second = [(pod("b1"), 1_000, GIB)]
    nodes = [
        node("s1", 30_500, 40 * GIB, first),
        node("s2", 29_000, 40 * GIB, second),
        node("cold", 14_000, 60 * GIB),
        node("full", 24_000, 120 * GIB),
    ]
    # The cold node takes 3000m up to its high threshold: 17000.
    given = args(lowThresholds=LOW, highThresholds={"cpu": 53.125, "memory": 90}, nodeFit=False)
    _, evictor = run(given, nodes)
    assert evictor.evicted == ["a1", "a2"]


@pytest.mark.parametrize(("moved", "expected"), [(7_000, 4_000), (2_000, 6_000)])
def test_x11_prod_pods_may_use_what_phase_one_left_of_nodes_that_are_low_in_both(moved: int, expected: int) -> None:
    low, both, prod_low, prod_both = (np.array([size]) for size in (4_000, 6_000, 1_000, 5_000))
    assert prod_budget(prod_low, prod_both, both, low + both - moved).tolist() == [expected]


def test_x12_a_candidate_that_fits_a_target_stays_counted_there() -> None:
    pods = [(pod(f"p{used}"), used, 0) for used in (3000, 2000, 1000)]
    nodes = [node("hot", 31_000, 0, pods), node("target", 20_000), node("middle", 24_000, 127 * GIB)]
    given = args(lowThresholds={"cpu": 63, "memory": 90}, highThresholds={"cpu": 75, "memory": 95})
    _, evictor = run(given, nodes)
    assert evictor.evicted == ["p3000", "p1000"]  # 2000 would be 25000 on the target, above its 24000


def test_x13_a_node_is_anomalous_after_one_more_high_cycle_than_configured() -> None:
    detector = Detector(60 * SECOND, abnormalities=5, normalities=3)
    states = {}
    for at_s in range(0, 180, 10):
        detector = detector.mark_abnormal(at_s * SECOND)
        states[at_s] = detector.is_anomalous
        if detector.is_anomalous:
            detector = detector.mark_normal(at_s * SECOND)
    assert [at_s for at_s, anomalous in states.items() if anomalous] == [50, 60, 70, 80, 90, 100, 110, 170]


def test_x13_a_reset_of_a_detector_that_is_ok_changes_nothing() -> None:
    detector = Detector(60 * SECOND, abnormalities=5, normalities=3)
    for at_s in range(5):
        detector = detector.mark_abnormal(at_s * SECOND)
    assert detector.reset(6 * SECOND).mark_abnormal(7 * SECOND).is_anomalous


def test_with_one_abnormality_a_node_is_a_source_at_once() -> None:
    nodes = [node("hot", 30_000, 0, [(pod("a"), 1_000, 0)]), node("cold", 0), node("middle", 24_000, 127 * GIB)]
    result, evictor = run(args(lowThresholds=LOW, highThresholds={"cpu": 75, "memory": 99.9}, nodeFit=False), nodes)
    assert evictor.evicted == ["a"]
    assert result.detectors == {}
    assert result.processed == {"hot"}


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"lowThresholds": {"cpu": 80}, "highThresholds": {"cpu": 70}}, "args.lowThresholds.cpu"),
        ({"lowThresholds": {"cpu": -1}}, "args.lowThresholds[...]"),
        ({"numberOfNodes": -1}, "args.numberOfNodes"),
        ({"nodeMetricExpirationSeconds": 0}, "args.nodeMetricExpirationSeconds"),
        ({"evictableNamespaces": {"include": ["a"], "exclude": ["b"]}}, "args.evictableNamespaces"),
        ({"anomalyCondition": {"timeout": "1m"}}, "args.anomalyCondition.consecutiveNormalities"),
        ({"nodePools": [{"prodHighThresholds": {"cpu": 9}, "highThresholds": {"cpu": 8}}]}, "args.nodePools[0].prodHighThresholds.cpu"),
        ({"nodeSelector": {"matchLabels": {"a b": "c"}}}, "args.nodeSelector"),
        ({"detectorCacheTimeout": "5"}, "args.detectorCacheTimeout"),
    ],
)  # fmt: skip
def test_bad_arguments_are_rejected_with_their_path(given: dict[str, object], path: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_args(given, "args")
    assert caught.value.path == path
