"""Runs the eviction strategies: a pod that must go is asked for as a deed, which becomes an eviction through the API. Source: spec/node-agent.md 3.2, 3.3."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from services.node_agent.qos import cpu_evict, evict, memory_evict
from services.node_agent.qos.cpu_evict import BestEffort, Window
from services.node_agent.qos.evict import Outcome, Task
from shared.agents.deeds import AnyDeed, EvictionAsked
from shared.kube.annotations import MIRROR
from shared.kube.instants import SECOND
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.slo_config import ResourceThreshold

CPU_COOLS_NS, MEMORY_COOLS_NS = 20 * SECOND, 4 * SECOND
ASKED_FOR_NS = 120 * SECOND
"""A pod that was asked for so long ago and is still there is asked for again."""
CPU = ("BECPUEvict", "CPUAllocatableEvict", "CPUEvict")
MEMORY = ("BEMemoryEvict", "MemoryAllocatableEvict", "MemoryEvict")


class Load(NamedTuple):
    """What was measured.

    Attributes:
        window: means over the threshold's window.
        best_effort: newest values, None without.
        node_bytes: the node's memory in use.
        pod_cores, pod_bytes: uid -> newest sample.
    """

    window: Window
    best_effort: BestEffort | None
    node_bytes: float | None
    pod_cores: Mapping[str, float]
    pod_bytes: Mapping[str, float]


class Evictor:
    """Asks for evictions, with a pause after each that was asked for.

    Attributes:
        asked: reason -> how many were asked for since the start.
    """

    def __init__(
        self, gates: Mapping[str, bool], tell: Callable[[AnyDeed], None], started_ns: int, every_s: int
    ) -> None:
        self._gates = gates
        self._tell = tell
        self._every_s = every_s
        self._cpu_ns = started_ns
        self._memory_ns: int | None = None
        self._asked_ns: dict[str, int] = {}
        self.asked: Counter[str] = Counter()

    @property
    def wanted(self) -> bool:
        """Whether any of the strategies may run."""
        return any(self._gates[feature] for feature in (*CPU, *MEMORY))

    def round(self, threshold: ResourceThreshold, node: Node, pods: Sequence[Pod], load: Load, now_ns: int) -> None:
        """One round of all strategies that are on and do not pause."""
        if not threshold.enable:
            return
        for uid in [uid for uid, at_ns in self._asked_ns.items() if now_ns - at_ns > ASKED_FOR_NS]:
            del self._asked_ns[uid]
        if now_ns >= self._cpu_ns + CPU_COOLS_NS and self._run(
            [self._cpu(feature, threshold, node, pods, load) for feature in CPU if self._gates[feature]],
            now_ns,
        ):
            self._cpu_ns = now_ns
        if (self._memory_ns is None or now_ns >= self._memory_ns + MEMORY_COOLS_NS) and self._run(
            [self._memory(feature, threshold, node, pods, load) for feature in MEMORY if self._gates[feature]],
            now_ns,
        ):
            self._memory_ns = now_ns

    def _run(self, outcomes: Iterable[Outcome], now_ns: int) -> bool:
        tasks = [outcome for outcome in outcomes if isinstance(outcome, Task)]
        if not tasks:
            return False
        releases = {task.feature: task.release for task in tasks}

        def ask(pod: Pod, feature: str) -> bool:
            if MIRROR in (pod.metadata.annotations or {}):
                return False  # a static pod: the API cannot evict it
            short = ", ".join(f"{name} {size}" for name, size in sorted(releases[feature].items()))
            reason = f"trigger by koordlet feature {feature}"
            self._tell(EvictionAsked(pod.metadata.uid, f"{reason}: to release {short}"))
            self.asked[reason] += 1
            self._asked_ns[pod.metadata.uid] = now_ns
            return True

        evictions = evict.carry_out(tasks, ask, lambda pod: pod.metadata.uid in self._asked_ns)
        return any(each.done for each in evictions)

    def _cpu(self, feature: str, threshold: ResourceThreshold, node: Node, pods: Sequence[Pod], load: Load) -> Outcome:
        match feature:
            case "BECPUEvict":
                return cpu_evict.best_effort(
                    threshold,
                    node,
                    pods,
                    load.pod_cores,
                    mean=load.window,
                    last=load.best_effort,
                    collect_every_s=self._every_s,
                )
            case "CPUEvict":
                return cpu_evict.by_usage(threshold, node, pods, load.pod_cores, load.window)
        return cpu_evict.by_allocatable(threshold, node, pods, load.pod_cores)

    def _memory(
        self, feature: str, threshold: ResourceThreshold, node: Node, pods: Sequence[Pod], load: Load
    ) -> Outcome:
        match feature:
            case "BEMemoryEvict":
                return memory_evict.best_effort(threshold, node, pods, load.pod_bytes, load.node_bytes)
            case "MemoryEvict":
                return memory_evict.by_usage(threshold, node, pods, load.pod_bytes, load.node_bytes)
        return memory_evict.by_allocatable(threshold, node, pods, load.pod_bytes)
