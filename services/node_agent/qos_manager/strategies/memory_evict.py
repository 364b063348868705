"""Memory evictions: a node with high memory usage, or with too large requests.

Source: spec/node-agent.md 3.3.
"""

from collections.abc import Iterable, Mapping

from services.node_agent.qos_manager.strategies import eviction_candidates
from services.node_agent.qos_manager.strategies.cpu_evict import allocatable_task
from services.node_agent.qos_manager.strategies.evict_until_released import Candidate, Kind, NoTask, Outcome, Task
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.quantity import nanos, value
from shared.kube.slo_config import ResourceThreshold

PRIORITY_SCALE = 1000
"""Factor on the memory of a pod from a priority list, so that one eviction mostly suffices until the next cycle.

Q: upstream does the same.
"""


def to_release(threshold: ResourceThreshold, node: Node, used: float | None) -> int | NoTask:
    """Returns bytes to release: down to `lower` once the node uses `threshold` percent."""
    percent = threshold.memory_evict_threshold_percent
    if percent is None or percent < 0:
        return NoTask.INVALID
    lower = percent - 2 if threshold.memory_evict_lower_percent is None else threshold.memory_evict_lower_percent
    if lower >= percent:
        return NoTask.INVALID
    capacity = value(nanos((node.status.capacity or {}).get("memory", "0")))
    if used is None or capacity <= 0:
        return NoTask.NONE
    used_percent = int(used) * 100 // capacity
    return capacity * (used_percent - lower) // 100 if used_percent >= percent else NoTask.NONE


def best_effort(
    threshold: ResourceThreshold, node: Node, pods: Iterable[Pod], pod_bytes: Mapping[str, float], used: float | None
) -> Outcome:
    """BEMemoryEvict: evicts pods labelled BE, of one priority the largest first."""
    release = to_release(threshold, node, used)
    if isinstance(release, NoTask):
        return release
    found = sorted(eviction_candidates.best_effort(pods, "BEMemoryEvict"), key=lambda pod: _BeOrder(pod, pod_bytes))
    candidates = [Candidate(pod, int(pod_bytes.get(pod.metadata.uid, 0))) for pod in found]
    return Task("BEMemoryEvict", Kind.USED, {"memory": release}, candidates, _part)


def _part(each: Candidate) -> Mapping[str, int]:
    return {"memory": each.used}


class _BeOrder:
    """Lower priority first; of equal or missing ones, higher usage first, without a sample last, by name downwards."""

    __slots__ = ("name", "priority", "used")

    def __init__(self, pod: Pod, pod_bytes: Mapping[str, float]) -> None:
        self.name, self.priority = pod.metadata.name, pod.spec.priority
        self.used = pod_bytes.get(pod.metadata.uid, 0)

    def __lt__(self, other: "_BeOrder") -> bool:
        if self.priority is not None and other.priority is not None and self.priority != other.priority:
            return self.priority < other.priority
        if not self.used and not other.used:
            return self.name > other.name
        return self.used > other.used


def by_usage(
    threshold: ResourceThreshold, node: Node, pods: Iterable[Pod], pod_bytes: Mapping[str, float], used: float | None
) -> Outcome:
    """MemoryEvict: evicts pods up to a priority that have the label for it."""
    most = threshold.evict_enabled_priority_threshold
    release = to_release(threshold, node, used)
    if release is NoTask.INVALID or most is None:
        return NoTask.INVALID
    if isinstance(release, NoTask):
        return release
    found = [pod for pod in eviction_candidates.by_priority(pods, "MemoryEvict", most) if pod.metadata.uid in pod_bytes]
    found.sort(key=lambda pod: (*eviction_candidates.order(pod), -pod_bytes[pod.metadata.uid]))
    candidates = [Candidate(pod, int(pod_bytes[pod.metadata.uid]) * PRIORITY_SCALE) for pod in found]
    return Task("MemoryEvict", Kind.USED, {"memory": release}, candidates, _part)


def by_allocatable(
    threshold: ResourceThreshold,
    node: Node,
    pods: Iterable[Pod],
    pod_bytes: Mapping[str, float],
) -> Outcome:
    """MemoryAllocatableEvict: pods request more memory than the node has, natively or as batch and mid memory."""
    return allocatable_task(
        "MemoryAllocatableEvict",
        "memory",
        threshold.memory_allocatable_evict_threshold_percent,
        threshold.memory_allocatable_evict_lower_percent,
        threshold.allocatable_evict_priority_threshold,
        node,
        list(pods),
        lambda pod: int(pod_bytes[uid]) * PRIORITY_SCALE if (uid := pod.metadata.uid) in pod_bytes else None,
    )
