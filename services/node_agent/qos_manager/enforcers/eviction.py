"""Runs the eviction strategies: each evicted pod is reported as an action, which becomes an eviction through the API.

Source: spec/node-agent.md 3.2, 3.3.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.qos_manager.strategies.evict_until_released import Task
from services.node_agent.qos_manager.strategies.eviction_strategies import (
    Load,
    cpu_strategies,
    memory_strategies,
    reason,
)
from shared.agents.actions import AnyAction, EvictionRequested
from shared.kube.instants import SECOND
from shared.kube.kept_annotations import MIRROR
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.slo_config import ResourceThreshold

EVICTION_RETRY_NS = 120 * SECOND
"""Nanoseconds after which the eviction of a pod that is still there is requested again."""
DETAIL_KEPT_NS = 300 * SECOND
"""Nanoseconds after its last eviction for which a pod has a series of its own."""


class EvictionEnforcer:
    """Requests evictions, with a pause after each.

    Attributes:
        requested: reason -> number of evictions requested since the start.
    """

    def __init__(self, gates: Mapping[str, bool], report_action: Callable[[AnyAction], None], started_ns: int) -> None:
        self._gates = gates
        self._report_action = report_action
        self._strategies = (cpu_strategies(started_ns), memory_strategies())
        self._requested_ns: dict[str, int] = {}
        self._by_pod: dict[tuple[str, str, str], tuple[int, int]] = {}
        """(namespace, name, reason) -> (evictions requested, instant of the last one)."""
        self.requested: Counter[str] = Counter()

    @property
    def enabled(self) -> bool:
        """Reports whether any of the strategies may run."""
        return any(self._gates[feature] for each in self._strategies for feature in each.features)

    def run_cycle(self, threshold: ResourceThreshold, node: Node, pods: Sequence[Pod], load: Load, now_ns: int) -> None:
        """Runs the strategies whose gate is on and whose pause is over."""
        for uid in [uid for uid, at_ns in self._requested_ns.items() if now_ns - at_ns > EVICTION_RETRY_NS]:
            del self._requested_ns[uid]
        for key in [key for key, (_, at_ns) in self._by_pod.items() if now_ns - at_ns > DETAIL_KEPT_NS]:
            del self._by_pod[key]

        def evict(pod: Pod, task: Task) -> bool:
            if MIRROR in (pod.metadata.annotations or {}):
                return False  # a static pod: the API cannot evict it
            short = ", ".join(f"{name} {size}" for name, size in sorted(task.release.items()))
            why = reason(task.feature)
            self._report_action(EvictionRequested(pod.metadata.uid, f"{why}: to release {short}"))
            self.requested[why] += 1
            key = (pod.metadata.namespace, pod.metadata.name, why)
            self._by_pod[key] = (self._by_pod.get(key, (0, 0))[0] + 1, now_ns)
            self._requested_ns[pod.metadata.uid] = now_ns
            return True

        for each in self._strategies:
            if not each.is_cooling(now_ns):
                outcomes = each.outcomes(self._gates, threshold, node, pods, load)
                each.carry_out(outcomes, evict, lambda pod: pod.metadata.uid in self._requested_ns, now_ns)

    def gauges(self) -> Iterator[Gauge]:
        """Yields evictions by reason, and the newest of them by pod."""
        for why, count in self.requested.items():
            yield Gauge("koordlet_pod_eviction", {"reason": why}, count)
        for (namespace, name, why), (count, _) in self._by_pod.items():
            labels = {"pod_namespace": namespace, "pod_name": name, "reason": why}
            yield Gauge("koordlet_pod_eviction_detail", labels, count)
