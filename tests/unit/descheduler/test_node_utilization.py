"""LowNodeUtilization, HighNodeUtilization and CustomPriority. Source: spec/descheduler.md 1.8, 1.9."""

import pytest

from services.descheduler.configuration.read_configuration import read_configuration
from shared.domain.component_config import BadConfig
from shared.kube.node import Taint
from shared.kube.pod import Container, ResourceRequirements
from tests.unit.descheduler.small_cluster import SmallCluster
from tests.unit.descheduler.test_sigs_plugins import config, victims

LOW, HIGH, PRIORITY = "LowNodeUtilization", "HighNodeUtilization", "CustomPriority"
USUAL = "thresholds: {cpu: 30}, targetThresholds: {cpu: 50}"
ORDER = "evictionOrder: [{name: dear, nodeSelector: {matchLabels: {cost: dear}}}, {name: cheap, nodeSelector: {matchLabels: {cost: cheap}}}]"


def loaded(plugin: str, args: str, pods: dict[str, list[str]], **node: object) -> SmallCluster:
    """Nodes of 10 cores with pods that request cpu: `a` with 2 and 3 cores has `a-0` and `a-1`."""
    cluster = SmallCluster(config("balance", plugin, args))
    for name, requests in pods.items():
        cluster.node(name, **(node if name == "cold" else {}))  # type: ignore[arg-type]
        for number, cpu in enumerate(requests):
            cluster.pod(f"{name}-{number}", name, cpu=cpu, priority=5000 + number)
    return cluster


def test_pods_leave_a_node_above_the_target_until_it_is_not_the_lowest_priority_first() -> None:
    cluster = loaded(LOW, f"{{{USUAL}}}", {"cold": ["1"], "hot": ["2", "2", "2", "2"], "middle": ["4"]})
    case = cluster.cycle()
    assert case is not None
    assert [(each.pod, each.destination) for each in case.victims] == [
        ("default/hot-0", "cold"),
        ("default/hot-1", "cold"),
    ]
    (cause,) = case.causes
    assert (cause.node, cause.scope, cause.resource, cause.measured, cause.limit) == (
        "hot",
        "requests",
        "cpu",
        8000,
        5000,
    )
    assert case.expected == ()  # requests are not measured, so that no report can confirm them


@pytest.mark.parametrize(
    ("args", "pods", "expected"),
    [
        (f"{{{USUAL}}}", {"cold": ["3"], "hot": ["3", "3"]}, ["hot-0"]),
        (f"{{{USUAL}}}", {"cold": ["4"], "hot": ["6"]}, []),
        (f"{{{USUAL}}}", {"cold": ["1"], "hot": ["5"]}, []),
        (f"{{{USUAL}, numberOfNodes: 1}}", {"cold": ["1"], "hot": ["3", "3"]}, []),
        (f"{{{USUAL}, evictableNamespaces: {{exclude: [default]}}}}", {"cold": ["1"], "hot": ["3", "3"]}, []),
        (f"{{{USUAL}, evictionLimits: {{node: 1}}}}", {"cold": ["1"], "hot": ["2", "2", "2", "2"]}, ["hot-0"]),
        # The room of the low nodes, 5 - 2 cores, ends after the second pod, which may exceed it.
        (f"{{{USUAL}}}", {"cold": ["2"], "hot": ["2", "2", "2", "2"]}, ["hot-0", "hot-1"]),
        ("{thresholds: {cpu: 10}, targetThresholds: {cpu: 10}, useDeviationThresholds: true}",
         {"cold": ["1"], "hot": ["3", "3"], "middle": ["3"]}, ["hot-0"]),
        ("{thresholds: {pods: 1}, targetThresholds: {pods: 2}}", {"cold": ["1"], "hot": ["1", "1", "1"]}, ["hot-0"]),
    ],
)  # fmt: skip
def test_which_pods_leave_nodes_with_many_requests(args: str, pods: dict[str, list[str]], expected: list[str]) -> None:
    assert victims(loaded(LOW, args, pods)) == expected


def test_a_cordoned_node_takes_no_pods_and_a_taint_must_be_tolerated() -> None:
    pods = {"cold": ["1"], "hot": ["3", "3"]}
    assert victims(loaded(LOW, f"{{{USUAL}}}", pods, unschedulable=True)) == []
    assert victims(loaded(LOW, f"{{{USUAL}}}", pods, taints=(Taint(key="x", effect="NoSchedule"),))) == []
    assert victims(loaded(LOW, f"{{{USUAL}}}", pods, taints=(Taint(key="x", effect="PreferNoSchedule"),))) == ["hot-0"]


def test_low_nodes_are_emptied_into_the_others_the_emptiest_first() -> None:
    cluster = loaded(HIGH, "{thresholds: {cpu: 30}}", {"cold": ["2"], "colder": ["1"], "full": ["5"]})
    case = cluster.cycle()
    assert case is not None
    assert [(each.pod, each.destination) for each in case.victims] == [
        ("default/colder-0", "full"), ("default/cold-0", "full"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "pods", "expected"),
    [
        ("{thresholds: {cpu: 30}}", {"cold": ["2"], "other": ["2"]}, []),
        ("{thresholds: {cpu: 30}, numberOfNodes: 1}", {"cold": ["2"], "full": ["5"]}, []),
        ("{thresholds: {cpu: 30}}", {"cold": ["2"], "full": ["10"]}, []),
        ("{thresholds: {cpu: 30}}", {"cold": ["1", "1", "1"], "full": ["8.5"]}, ["cold-0", "cold-1"]),
        ("{thresholds: {nvidia.com/gpu: 30, cpu: 30}}", {"cold": ["1"], "full": ["5"]}, []),  # no node has room for it
        ("{thresholds: {cpu: 30}, evictionModes: [OnlyThresholdingResources]}", {"cold": ["1"], "full": ["5"]}, ["cold-0"]),
        ("{thresholds: {pods: 1}, evictionModes: [OnlyThresholdingResources]}", {"cold": ["1"], "full": ["1", "1"]}, []),
    ],
)  # fmt: skip
def test_which_pods_leave_nodes_with_few_requests(args: str, pods: dict[str, list[str]], expected: list[str]) -> None:
    cluster = loaded(HIGH, args, pods)
    case = cluster.cycle()
    chosen = [*(each.pod for each in case.victims), *(each.pod for each in case.passed_over)] if case else []
    assert chosen == [f"default/{name}" for name in expected]


def test_a_low_node_that_is_cordoned_is_emptied_as_well() -> None:
    cluster = loaded(HIGH, "{thresholds: {cpu: 30}}", {"cold": ["2"], "full": ["5"]}, unschedulable=True)
    assert victims(cluster) == ["cold-0"]


def priced(args: str, pods: dict[str, list[str]]) -> SmallCluster:
    """Nodes whose names begin with their level."""
    cluster = SmallCluster(config("balance", PRIORITY, args))
    for name, requests in pods.items():
        cluster.node(name, labels={"cost": name.rstrip("0123456789")})
        for number, cpu in enumerate(requests):
            cluster.pod(f"{name}-{number}", name, cpu=cpu)
    return cluster


def test_pods_leave_a_dear_node_for_a_cheap_one_the_smallest_first() -> None:
    cluster = priced(f"{{{ORDER}}}", {"dear": ["3", "1"], "cheap": ["1"], "other": []})
    case = cluster.cycle()
    assert case is not None
    assert [(each.pod, each.destination) for each in case.victims] == [
        ("default/dear-1", "cheap"),
        ("default/dear-0", "cheap"),
    ]


@pytest.mark.parametrize(
    ("args", "pods", "expected"),
    [
        (f"{{{ORDER}, paused: true}}", {"dear": ["1"], "cheap": []}, []),
        (f"{{{ORDER}}}", {"dear": ["1"], "cheap": ["10"]}, []),
        (f"{{{ORDER}}}", {"dear": ["1", "4"], "cheap": ["7"]}, ["dear-0"]),
        (f"{{{ORDER}, mode: DrainNode}}", {"dear": ["1", "4"], "cheap": ["7"]}, []),
        (f"{{{ORDER}, mode: DrainNode}}", {"dear": ["1", "4"], "cheap": ["7"], "cheap2": ["5"]}, ["dear-0", "dear-1"]),
        # The pods of the first node take the room of those of the second.
        (f"{{{ORDER}, mode: DrainNode}}", {"dear1": ["6"], "dear2": ["6"], "cheap": []}, ["dear1-0"]),
        (f"{{{ORDER}, evictableNamespaces: {{exclude: [default]}}}}", {"dear": ["1"], "cheap": []}, []),
    ],
)  # fmt: skip
def test_which_pods_leave_for_a_later_level(args: str, pods: dict[str, list[str]], expected: list[str]) -> None:
    assert victims(priced(args, pods)) == expected


def test_of_a_drained_node_no_pod_leaves_where_the_scheduler_finds_no_place_for_one() -> None:
    """It puts the first one on the node that the second needs."""
    cluster = priced(f"{{{ORDER}, mode: DrainNode}}", {"dear": ["1", "4"], "cheap": ["7"], "cheap2": ["6"]})
    case = cluster.cycle()
    assert case is not None
    assert case.victims == ()
    assert [each.why for each in case.passed_over] == [
        "it leaves with default/dear-1 or not at all, which has no destination",
        "no destination: no other node admits the pod",
    ]


def test_the_search_on_a_node_ends_after_five_pods_in_a_row_that_fit_nowhere() -> None:
    cluster = priced(f"{{{ORDER}}}", {"dear": [], "cheap": []})
    gpu = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    for number in range(5):
        spec = {"containers": (Container(name="c", resources=ResourceRequirements(requests=gpu)),)}
        cluster.pod(f"misfit-{number}", "dear", spec=spec)
    cluster.pod("big", "dear", cpu="2")
    assert victims(cluster) == []


@pytest.mark.parametrize(
    ("plugin", "args", "path"),
    [
        (LOW, "{}", ".thresholds"),
        (LOW, "{thresholds: {cpu: 101}, targetThresholds: {cpu: 101}}", ".thresholds[...]"),
        (LOW, "{thresholds: {cpu: 60}, targetThresholds: {cpu: 50}}", ".thresholds.cpu"),
        (LOW, "{thresholds: {cpu: 20}, targetThresholds: {memory: 50}}", ".targetThresholds"),
        (LOW, f"{{{USUAL}, evictableNamespaces: {{include: [a]}}}}", ".evictableNamespaces.include"),
        (LOW, f"{{{USUAL}, metricsUtilization: {{source: KubernetesMetrics}}}}", ".metricsUtilization"),
        (HIGH, "{thresholds: {cpu: 20}, evictionModes: [Only]}", ".evictionModes[0]"),
        (PRIORITY, "{}", ".evictionOrder"),
        (PRIORITY, f"{{{ORDER}, mode: Drain}}", ".mode"),
        (
            PRIORITY,
            "{evictionOrder: [{name: a, nodeSelector: {}}, {name: a, nodeSelector: {}}]}",
            ".evictionOrder[1].name",
        ),
        (PRIORITY, "{evictionOrder: [{name: a, nodeSelector: {}}, {name: b}]}", ".evictionOrder[1].nodeSelector"),
    ],
)
def test_bad_arguments_are_rejected_with_their_path(plugin: str, args: str, path: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_configuration(config("balance", plugin, args))
    assert caught.value.path == f"profiles[0].pluginConfig[0].args{path}"
