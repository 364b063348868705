"""The worked examples E11 to E14 of spec/node-agent.md 8, and releases that count for several tasks."""

import pytest
from msgspec.structs import replace

from services.node_agent.qos_manager.strategies import cpu_evict, eviction_candidates, memory_evict
from services.node_agent.qos_manager.strategies.cpu_evict import BestEffort, Window
from services.node_agent.qos_manager.strategies.evict_until_released import (
    Candidate,
    Kind,
    NoTask,
    Outcome,
    Task,
    evict_until_released,
)
from services.node_agent.qos_manager.strategies.eviction_strategies import memory_strategies
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Container, Pod, ResourceRequirements
from shared.kube.slo_config import ResourceThreshold
from tests.support.pods import kept_pod

GIB = 2**30
EVICTABLE = {"koordinator.sh/eviction-enabled": "true"}


def pod(
    name: str, priority: int = 5500, *, labels: dict[str, str] | None = None, requests: dict[str, str] | None = None
) -> Pod:
    return kept_pod(
        name,
        namespace="default",
        labels=EVICTABLE | (labels or {}),
        requests=requests,
        phase="Running",
        qos_class="BestEffort",
        priority=priority,
    )


def node(**allocatable: str) -> Node:
    named = {name.replace("batch_", "kubernetes.io/batch-"): text for name, text in allocatable.items()}
    return Node(
        metadata=Metadata(name="n"), status=NodeStatus(capacity={"cpu": "32", "memory": "64Gi"}, allocatable=named)
    )


@pytest.mark.parametrize(("quota", "limit"), [(1_200_000, 12_000), (-1, 18_000), (2_400_000, 18_000)])
def test_e10_limit_of_best_effort(quota: int, limit: int) -> None:
    assert cpu_evict.real_limit([frozenset(range(18)), frozenset(range(24))], quota) == limit


@pytest.mark.parametrize(
    ("last", "released"), [(BestEffort(7_500, 20_000, 8_000), 8_000), (BestEffort(9_000, 20_000, 10_000), 6_000)]
)
def test_e11_best_effort_far_below_its_request(last: BestEffort, released: int) -> None:
    threshold = ResourceThreshold(
        cpu_evict_be_satisfaction_lower_percent=50, cpu_evict_be_satisfaction_upper_percent=80
    )
    mean = Window(BestEffort(7_500, 20_000, 8_000), 1, None)
    task = cpu_evict.best_effort(threshold, node(), [], {}, mean=mean, last=last, collect_interval_s=1)
    assert isinstance(task, Task)
    assert task.release == {"kubernetes.io/batch-cpu": released}


def test_e12_a_node_with_high_cpu_usage() -> None:
    threshold = ResourceThreshold(cpu_evict_threshold_percent=85, evict_enabled_priority_threshold=5999)
    pods = [pod("a"), pod("b"), pod("c"), pod("d")]
    cores = {"a": 0.4, "b": 1.2, "c": 0.5, "d": 0.1}
    task = cpu_evict.by_usage(threshold, node(), pods, cores, Window(None, 0, 28.5))
    assert isinstance(task, Task)
    assert task.release == {"cpu": 1_920}
    evictions = evict_until_released([task], lambda *_: True, lambda _: False)
    assert [each.pod.metadata.name for each in evictions] == ["b", "c", "a"]


def test_e13_a_node_with_high_memory_usage() -> None:
    threshold = ResourceThreshold(memory_evict_threshold_percent=70)
    assert memory_evict.to_release(threshold, node(), 50 * GIB) == 6_871_947_673
    assert memory_evict.to_release(threshold, node(), 40 * GIB) is NoTask.NONE


def test_e14_requests_beyond_allocatable() -> None:
    cpu = ResourceThreshold(
        cpu_allocatable_evict_threshold_percent=120,
        cpu_allocatable_evict_lower_percent=100,
        allocatable_evict_priority_threshold=5999,
    )
    pods = [pod("a", requests={"kubernetes.io/batch-cpu": "40k"})]
    task = cpu_evict.by_allocatable(cpu, node(batch_cpu="30k"), pods, {"a": 1.0})
    assert isinstance(task, Task)
    assert task.release == {"kubernetes.io/batch-cpu": 10_000}
    memory = ResourceThreshold(
        memory_allocatable_evict_threshold_percent=120,
        memory_allocatable_evict_lower_percent=100,
        allocatable_evict_priority_threshold=5999,
    )
    pods = [pod("a", requests={"kubernetes.io/batch-memory": "60Gi"})]
    task = memory_evict.by_allocatable(memory, node(batch_memory="40Gi"), pods, {"a": 1.0})
    assert isinstance(task, Task)
    assert task.release == {"kubernetes.io/batch-memory": 21_474_836_480}


def test_native_cpu_requested_beyond_the_node_evicts_no_more_than_that() -> None:
    threshold = ResourceThreshold(
        cpu_allocatable_evict_threshold_percent=100,
        cpu_allocatable_evict_lower_percent=90,
        allocatable_evict_priority_threshold=3999,
    )
    pods = [pod(name, 3500, labels={"koordinator.sh/qosClass": "LS"}, requests={"cpu": "3"}) for name in "abcd"]
    task = cpu_evict.by_allocatable(threshold, node(cpu="10"), pods, dict.fromkeys("abcd", 1.0))
    assert isinstance(task, Task)
    assert task.release == {"cpu": 3_000}
    assert len(evict_until_released([task], lambda *_: True, lambda _: False)) == 1


def test_the_release_of_one_task_counts_for_the_next_of_its_kind() -> None:
    big, small = Candidate(pod("big"), 2_000), Candidate(pod("small"), 500)

    def used(each: Candidate) -> dict[str, int]:
        return {"cpu": each.used}

    tasks = [
        Task("First", Kind.USED, {"cpu": 1_000}, [big], used),
        Task("Second", Kind.USED, {"cpu": 1_500}, [small], used),
    ]
    assert [each.feature for each in evict_until_released(tasks, lambda *_: True, lambda _: False)] == ["First"]


def test_a_failed_eviction_goes_on_to_the_next_pod_and_one_under_way_is_not_repeated() -> None:
    pods = [Candidate(pod(name), 1_000) for name in ("refused", "leaving", "next")]
    task = Task("CPUEvict", Kind.USED, {"cpu": 2_000}, pods, lambda each: {"cpu": each.used})
    found = evict_until_released(
        [task], lambda pod, _: pod.metadata.name != "refused", lambda p: p.metadata.name == "leaving"
    )
    assert [(each.pod.metadata.name, each.done) for each in found] == [("refused", False), ("next", True)]


@pytest.mark.parametrize(("policy", "allowed"), [('["CPUEvict"]', True), ("[]", False), ("broken", False)])
def test_a_pods_annotation_restricts_the_features_that_may_evict_it(policy: str, allowed: bool) -> None:
    meta = Metadata(name="p", annotations={"koordinator.sh/eviction-policy": policy})
    assert eviction_candidates.allows(Pod(metadata=meta), "CPUEvict") is allowed


MID_SHORT = ResourceThreshold(
    cpu_allocatable_evict_threshold_percent=100,
    cpu_allocatable_evict_lower_percent=95,
    allocatable_evict_priority_threshold=7999,
)


def mid_and(*pods: Pod) -> list[Pod]:
    """A mid pod that requests more than the node has and may not be evicted, and others."""
    return [
        pod("mid", 7500, requests={"kubernetes.io/mid-cpu": "4k"}, labels={eviction_candidates.ENABLED: "false"}),
        *pods,
    ]


def order_of(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Task)
    return [each.pod.metadata.name for each in outcome.candidates]


@pytest.mark.parametrize(("second", "order"), [("251", ["b", "a"]), ("250", ["a", "b"]), ("249", ["a", "b"])])
def test_of_equal_priority_the_larger_request_is_evicted_first_even_if_its_resource_is_not_short(
    second: str, order: list[str]
) -> None:
    pods = mid_and(
        pod("a", requests={"kubernetes.io/batch-cpu": "250"}), pod("b", requests={"kubernetes.io/batch-cpu": second})
    )
    at = node(batch_cpu="30k", **{"kubernetes.io/mid-cpu": "3k"})
    found = cpu_evict.by_allocatable(MID_SHORT, at, pods, {"a": 1.0, "b": 1.0})
    assert order_of(found) == order


def test_the_order_by_request_takes_no_account_of_usage() -> None:
    pods = mid_and(pod("busy"), pod("idle", requests={"kubernetes.io/batch-cpu": "250"}))
    at = node(batch_cpu="30k", **{"kubernetes.io/mid-cpu": "3k"})
    assert order_of(cpu_evict.by_allocatable(MID_SHORT, at, pods, {"idle": 0.0, "busy": 2.0})) == ["idle", "busy"]


@pytest.mark.parametrize(("overhead", "short"), [("1", False), ("1001m", True)])
def test_native_cpu_counts_with_init_containers_and_overhead(overhead: str, short: bool) -> None:
    free = pod("free", 3500, requests={"cpu": "5"})
    init = Container(name="i", resources=ResourceRequirements(requests={"cpu": "9"}))
    free = replace(free, spec=replace(free.spec, init_containers=(init,), overhead={"cpu": overhead}))
    found = cpu_evict.by_allocatable(MID_SHORT, node(cpu="10"), [free], {"free": 1.0})
    assert (found is NoTask.NONE) is not short


def test_a_resource_that_neither_the_node_has_nor_a_pod_requests_evicts_nobody() -> None:
    task = cpu_evict.by_allocatable(MID_SHORT, node(cpu="10"), [pod("a")], {"a": 1.0})
    assert isinstance(task, Task)
    assert task.release == {"kubernetes.io/batch-cpu": 0}
    assert evict_until_released([task], lambda *_: True, lambda _: False) == []


def test_a_pause_ends_with_its_last_instant_and_restarts_with_an_eviction() -> None:
    strategies = memory_strategies()
    assert not strategies.is_cooling(0)
    task = Task("MemoryEvict", Kind.USED, {"memory": 1}, [Candidate(pod("a"), 1)], lambda each: {"memory": each.used})
    strategies.carry_out({"MemoryEvict": task}, lambda *_: False, lambda _: False, 0)
    assert not strategies.is_cooling(0)
    strategies.carry_out({"MemoryEvict": task}, lambda *_: True, lambda _: False, 0)
    assert (strategies.is_cooling(4 * SECOND - 1), strategies.is_cooling(4 * SECOND)) == (True, False)
