"""Rules that keep evictions from going in circles.

- A pod is not moved twice for one cause within a set time; the pod that replaced it counts as the same one.
- A node that received pods is no source at once: its usage does not show them yet.
- A pod does not return to the node that one of its workload left, while the cause may hold.
- A node is no source again while a case moves pods off it: its usage does not show yet that they have left.

A pod that has ended goes nowhere, so that only the first rule concerns it.

These are rules of this system; upstream has none of them.
"""

from services.descheduler.framework.cycle_context import Filter
from services.descheduler.load_aware.measured_node import PodOnNode
from services.descheduler.settings import DecisionSettings
from services.descheduler.state.descheduler_state import DeschedulerState
from services.descheduler.state.eviction_cases import LeftNode
from shared.kube.instants import SECOND


class NoLoops:
    """The rules at one instant."""

    def __init__(self, state: DeschedulerState, settings: DecisionSettings, now_ns: int) -> None:
        self._repeat_ns = int(settings.repeat_after_s * SECOND)
        self._settle_ns = int(settings.source_after_s * SECOND)
        self._now_ns = now_ns
        self._cases = state.cases
        self._left = state.cases.left
        self._received = state.cases.received_ns
        self._moving = state.cases.moving_pods()

    def filter_of(self, plugin: str) -> Filter:
        """Returns the filter of pods that a plugin may move."""
        sources = self._cases.sources(plugin)

        def refusal(pod: PodOnNode) -> str:
            uid = pod.pod.metadata.uid
            if uid in self._moving:
                return f"case {self._moving[uid]} moves it"
            if pod.pod.has_ended:
                return ""
            for left in self._left.get(uid, ()), self._left.get(pod.key, ()):
                for each in left:
                    if each.plugin == plugin and self._now_ns - each.at_ns < self._repeat_ns:
                        return f"it left {each.node} for the same cause in case {each.case}, a moment ago"
            node = pod.pod.spec.node_name
            if case := sources.get(node):
                return f"case {case} moves pods off node {node}, and its effect is not measured yet"
            received_ns = self._received.get(node, 0)
            if received_ns and self._now_ns - received_ns < self._settle_ns:
                return f"node {node} received pods a moment ago"
            return ""

        return refusal

    def left_lately(self, most: int) -> dict[str, tuple[str, ...]]:
        """Returns the nodes that were left lately, by the keys of `EvictionCases.left`; of more than `most` keys, those
        of the newest cases.
        """
        found = {
            key: (max(each.at_ns for each in left), tuple(sorted({each.node for each in left})))
            for key, all_left in self._left.items()
            if (left := [each for each in all_left if self._now_ns - each.at_ns < self._repeat_ns])
        }
        newest = sorted(found.items(), key=lambda each: (-each[1][0], each[0]))[:most]
        return {key: nodes for key, (_, nodes) in newest}

    def left_by(self, pod: PodOnNode) -> tuple[str, ...]:
        """Returns the nodes that this pod, or another of its workload, has left lately."""
        owner = pod.owner
        found: list[LeftNode] = [
            each
            for key in (owner.uid if owner else "", pod.key, pod.pod.metadata.uid)
            if key
            for each in self._left.get(key, ())
        ]
        return tuple(sorted({each.node for each in found if self._now_ns - each.at_ns < self._repeat_ns}))
