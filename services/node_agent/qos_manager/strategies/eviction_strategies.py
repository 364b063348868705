"""The eviction strategies of cpu and of memory: the tasks of a cycle, and the pause after evictions.

Source: spec/node-agent.md 3.2, 3.3.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from services.node_agent.qos_manager.strategies import cpu_evict, memory_evict
from services.node_agent.qos_manager.strategies.cpu_evict import BestEffort, Window
from services.node_agent.qos_manager.strategies.evict_until_released import (
    Eviction,
    Outcome,
    Task,
    evict_until_released,
)
from shared.kube.instants import SECOND
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.slo_config import ResourceThreshold

Outcomes = dict[str, Outcome]
"""Feature -> its task, or the reason for none; in the order of evictions."""


class Load(NamedTuple):
    """Measured values of a cycle.

    Attributes:
        window: means over the threshold's window.
        best_effort: newest values, None without.
        node_bytes: the node's memory in use.
        pod_cores, pod_bytes: uid -> newest sample.
        interval_s: seconds between two samples.
    """

    window: Window
    best_effort: BestEffort | None
    node_bytes: float | None
    pod_cores: Mapping[str, float]
    pod_bytes: Mapping[str, float]
    interval_s: int


class Strategies:
    """The strategies of one resource, in order, and the pause that they share.

    Attributes:
        features: their names, which are the feature gates.
        evicted_ns: time of their last eviction; None: never.
    """

    def __init__(self, features: tuple[str, ...], cooling_ns: int, evicted_ns: int | None) -> None:
        self.features = features
        self.evicted_ns = evicted_ns
        self._cooling_ns = cooling_ns

    def is_cooling(self, now_ns: int) -> bool:
        """Reports whether the pause after the last eviction lasts."""
        return self.evicted_ns is not None and now_ns < self.evicted_ns + self._cooling_ns

    def outcomes(
        self, gates: Mapping[str, bool], threshold: ResourceThreshold, node: Node, pods: Sequence[Pod], load: Load
    ) -> Outcomes:
        """Evaluates the strategies whose gate is on; none while the threshold is disabled."""
        if not threshold.enable:
            return {}
        return {
            feature: _EVALUATED[feature](threshold, node, pods, load) for feature in self.features if gates[feature]
        }

    def carry_out(
        self, outcomes: Outcomes, evict_: Callable[[Pod, Task], bool], terminating: Callable[[Pod], bool], now_ns: int
    ) -> list[Eviction]:
        """Evicts until each task's release is covered; an eviction starts the pause again.

        Arguments as in `evict_until_released`.
        """
        tasks = [outcome for outcome in outcomes.values() if isinstance(outcome, Task)]
        evictions = evict_until_released(tasks, evict_, terminating)
        if any(each.done for each in evictions):
            self.evicted_ns = now_ns
        return evictions


def cpu_strategies(started_ns: int) -> Strategies:
    """Returns the strategies of cpu; their pause also follows the agent's start."""
    return Strategies(("BECPUEvict", "CPUAllocatableEvict", "CPUEvict"), 20 * SECOND, started_ns)


def memory_strategies() -> Strategies:
    """Returns the strategies of memory."""
    return Strategies(("BEMemoryEvict", "MemoryAllocatableEvict", "MemoryEvict"), 4 * SECOND, None)


def reason(feature: str) -> str:
    """Returns the reason of an eviction in upstream's words, on which alerts match."""
    return f"trigger by koordlet feature {feature}"


def _best_effort_cpu(threshold: ResourceThreshold, node: Node, pods: Sequence[Pod], load: Load) -> Outcome:
    return cpu_evict.best_effort(
        threshold,
        node,
        pods,
        load.pod_cores,
        mean=load.window,
        last=load.best_effort,
        collect_interval_s=load.interval_s,
    )


_EVALUATED: Mapping[str, Callable[[ResourceThreshold, Node, Sequence[Pod], Load], Outcome]] = {
    "BECPUEvict": _best_effort_cpu,
    "CPUAllocatableEvict": lambda threshold, node, pods, load: cpu_evict.by_allocatable(
        threshold, node, pods, load.pod_cores
    ),
    "CPUEvict": lambda threshold, node, pods, load: cpu_evict.by_usage(
        threshold, node, pods, load.pod_cores, load.window
    ),
    "BEMemoryEvict": lambda threshold, node, pods, load: memory_evict.best_effort(
        threshold, node, pods, load.pod_bytes, load.node_bytes
    ),
    "MemoryAllocatableEvict": lambda threshold, node, pods, load: memory_evict.by_allocatable(
        threshold, node, pods, load.pod_bytes
    ),
    "MemoryEvict": lambda threshold, node, pods, load: memory_evict.by_usage(
        threshold, node, pods, load.pod_bytes, load.node_bytes
    ),
}
