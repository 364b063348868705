"""CPU evictions: best effort far below its request, a node with high usage, a node with too large requests.

Source: spec/node-agent.md 3.2.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from services.node_agent.cgroup.cpu_conversions import PERIOD_US
from services.node_agent.qos_manager.strategies import eviction_candidates, requests_to_release_by_class
from services.node_agent.qos_manager.strategies.evict_until_released import (
    Amounts,
    Candidate,
    Kind,
    NoTask,
    Outcome,
    Task,
)
from shared.kube.node import REPORTS_MISSING, Node
from shared.kube.pod import Pod
from shared.kube.quantity import milli, nanos, value
from shared.kube.slo_config import ResourceThreshold

BATCH_CPU = "kubernetes.io/batch-cpu"
DEFAULT_USAGE_PERCENT = 90


class BestEffort(NamedTuple):
    """Usage, request and limit of best effort; milli-cores."""

    usage: float
    request: float
    limit: float


class Window(NamedTuple):
    """Means over a window, and the number of their samples.

    Attributes:
        best_effort: None when usage, request or limit has no sample.
        samples: number of samples of the usage of best effort.
        node_cores: mean of the node's usage, None without a sample.
    """

    best_effort: BestEffort | None
    samples: int
    node_cores: float | None


def real_limit(sets: Iterable[frozenset[int]], quota_us: int) -> int:
    """Returns the limit of best effort in milli-cores: its smallest cpuset, and its quota if it has one.

    Source: spec/node-agent.md 1.2.
    """
    by_cpus = 1000 * min((len(one) for one in sets if one), default=0)
    return by_cpus if quota_us <= 0 else min(by_cpus, quota_us * 1000 // PERIOD_US)


def window_s(threshold: ResourceThreshold, collect_interval_s: int) -> int:
    """Returns the window of the means."""
    return max(collect_interval_s, threshold.cpu_evict_time_window_seconds or 0)


def best_effort(
    threshold: ResourceThreshold,
    node: Node,
    pods: Iterable[Pod],
    pod_cores: Mapping[str, float],
    *,
    mean: Window,
    last: BestEffort | None,
    collect_interval_s: int,
) -> Outcome:
    """BECPUEvict: best effort has less than `lower` percent of its request and uses nearly all of it.

    Args:
        pod_cores: uid -> last usage.
        last: the newest values, which must exceed the bounds as well.
    """
    lower = threshold.cpu_evict_be_satisfaction_lower_percent or 0
    upper = threshold.cpu_evict_be_satisfaction_upper_percent or 0
    if not (0 < lower <= 60 and 0 < upper < 100 and upper >= lower):
        return NoTask.INVALID
    release = _to_release(threshold, node, mean, last, collect_interval_s)
    if release <= 0:
        return NoTask.NONE
    candidates = []
    for pod in eviction_candidates.best_effort(pods, "BECPUEvict"):
        request = requests_to_release_by_class.request_of(pod, BATCH_CPU)
        candidates.append((pod, _milli(pod_cores, pod) / request if request else 0.0))
    # Without a priority on both sides, only the ratio of usage to request decides.
    ordered = sorted(candidates, key=_BeOrder)
    return Task(
        "BECPUEvict",
        Kind.REQUEST,
        {BATCH_CPU: release},
        [Candidate(pod, _milli(pod_cores, pod)) for pod, _ in ordered],
        lambda each: {BATCH_CPU: requests_to_release_by_class.request_of(each.pod, BATCH_CPU)},
    )


def _milli(pod_cores: Mapping[str, float], pod: Pod) -> int:
    return int(pod_cores.get(pod.metadata.uid, 0.0) * 1000)


class _BeOrder:
    """Lower priority first; of equal or missing ones, higher usage first."""

    __slots__ = ("priority", "ratio")

    def __init__(self, of: tuple[Pod, float]) -> None:
        self.priority, self.ratio = of[0].spec.priority, of[1]

    def __lt__(self, other: "_BeOrder") -> bool:
        if self.priority is None or other.priority is None or self.priority == other.priority:
            return self.ratio > other.ratio
        return self.priority < other.priority


def _to_release(
    threshold: ResourceThreshold, node: Node, mean: Window, last: BestEffort | None, collect_interval_s: int
) -> int:
    if mean.best_effort is None or last is None:
        return 0
    if mean.samples * collect_interval_s < window_s(threshold, collect_interval_s) // 3:
        return 0
    averaged, current = mean.best_effort, last
    if threshold.cpu_evict_policy == "evictByAllocatable":
        allocatable = _allocatable(node)
        averaged, current = averaged._replace(limit=allocatable), current._replace(limit=allocatable)
    if not _uses_nearly_all(threshold, averaged):
        return 0
    release = _beyond(threshold, averaged)
    if release <= 0 or not _uses_nearly_all(threshold, current):
        return 0
    if (current.request, current.limit) == (averaged.request, averaged.limit):
        return release
    return max(0, min(release, _beyond(threshold, current)))


def _allocatable(node: Node) -> float:
    text = (node.status.allocatable or {}).get(BATCH_CPU)
    return -1.0 if text is None else float(value(nanos(text)) or 1)


def _uses_nearly_all(threshold: ResourceThreshold, of: BestEffort) -> bool:
    if of.limit <= 0:
        return False
    percent = threshold.cpu_evict_be_usage_threshold_percent
    return of.limit < 1000 or of.usage / of.limit >= (DEFAULT_USAGE_PERCENT if percent is None else percent) / 100


def _beyond(threshold: ResourceThreshold, of: BestEffort) -> int:
    lower = (threshold.cpu_evict_be_satisfaction_lower_percent or 0) / 100
    upper = (threshold.cpu_evict_be_satisfaction_upper_percent or 0) / 100
    if of.request <= 0:
        return 0
    rate = of.limit / of.request
    return int(of.request * (upper - rate)) if rate <= lower else 0


def by_usage(
    threshold: ResourceThreshold,
    node: Node,
    pods: Iterable[Pod],
    pod_cores: Mapping[str, float],
    mean: Window,
) -> Outcome:
    """CPUEvict: the node uses more than `threshold` percent of its cpu; evicts down to `lower`."""
    percent, most = threshold.cpu_evict_threshold_percent, threshold.evict_enabled_priority_threshold
    if percent is None or percent < 0 or most is None:
        return NoTask.INVALID
    lower = percent - 2 if threshold.cpu_evict_lower_percent is None else threshold.cpu_evict_lower_percent
    if lower >= percent:
        return NoTask.INVALID
    capacity = milli(nanos((node.status.capacity or {}).get("cpu", "0")))
    if mean.node_cores is None or capacity <= 0:
        return NoTask.NONE
    used_percent = int(mean.node_cores * 1000) * 100 // capacity
    if used_percent < percent:
        return NoTask.NONE
    release = capacity * (used_percent - lower) // 100
    found = [pod for pod in eviction_candidates.by_priority(pods, "CPUEvict", most) if pod.metadata.uid in pod_cores]
    found.sort(key=lambda pod: (*eviction_candidates.order(pod), -_milli(pod_cores, pod)))
    candidates = [Candidate(pod, _milli(pod_cores, pod)) for pod in found]
    return Task("CPUEvict", Kind.USED, {"cpu": release}, candidates, lambda each: {"cpu": each.used})


def by_allocatable(
    threshold: ResourceThreshold,
    node: Node,
    pods: Iterable[Pod],
    pod_cores: Mapping[str, float],
) -> Outcome:
    """CPUAllocatableEvict: pods request more cpu than the node has, natively or as batch and mid cpu."""
    return allocatable_task(
        "CPUAllocatableEvict",
        "cpu",
        threshold.cpu_allocatable_evict_threshold_percent,
        threshold.cpu_allocatable_evict_lower_percent,
        threshold.allocatable_evict_priority_threshold,
        node,
        list(pods),
        lambda pod: _milli(pod_cores, pod) if pod.metadata.uid in pod_cores else None,
    )


def allocatable_task(
    feature: str,
    resource: str,
    percent: int | None,
    lower: int | None,
    most: int | None,
    node: Node,
    pods: list[Pod],
    used: Callable[[Pod], int | None],
) -> Outcome:
    """Returns the task of an allocatable strategy; a pod releases its request if its class owns a short resource.

    Of equal priorities the larger request is evicted first, even if its resource is not short.

    Args:
        used: a pod's usage; None keeps it from being a candidate.
    """
    if percent is None or percent < 0 or lower is None or lower >= percent or most is None or most > 7999:
        return NoTask.INVALID
    rule = requests_to_release_by_class.Allocatable(resource, percent, lower, most)
    short = rule.short(pods, node.status.allocatable or {})
    if REPORTS_MISSING in (node.metadata.annotations or {}):
        # The controller keeps batch and mid resources at what the pods request; nobody is evicted for missing reports.
        short = {name: size for name, size in short.items() if name == resource}
    if not short:
        return NoTask.NONE

    def part(each: Candidate) -> Amounts:
        name, size = requests_to_release_by_class.class_request(each.pod, resource)
        return {name: size} if name in short else {}

    eligible = ((pod, used(pod)) for pod in eviction_candidates.by_priority(pods, feature, most))
    found = [Candidate(pod, size) for pod, size in eligible if size is not None]
    found.sort(
        key=lambda each: (
            *eviction_candidates.order(each.pod),
            -requests_to_release_by_class.class_request(each.pod, resource)[1],
        )
    )
    return Task(feature, Kind.REQUEST, short, found, part)
