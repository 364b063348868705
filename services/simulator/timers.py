"""What is due when: derived from the State and the settings, kept so that no step looks at every object."""

import heapq

from services.simulator.kubelet.pod_lifecycle import due_ns
from services.simulator.seeded_random import text_hash
from services.simulator.settings import SimulatorSettings
from services.simulator.state import SimulatorState
from shared.events import Event
from shared.events.cluster import NodeMetricObserved, NodeObserved, PodObserved
from shared.kube.instants import SECOND, instant_ns
from shared.kube.node import NodeMetric


class Timers:
    """The next instant of each pod and node. An entry that the object has outgrown is harmless: what is due is checked again."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self._settings = settings
        self._pods: list[tuple[int, str]] = []
        self._reports: list[tuple[int, str]] = []

    def load(self, state: SimulatorState) -> None:
        """Start over from the State."""
        self._pods = [
            (at_ns, key) for key, pod in state.pods().items() if (at_ns := due_ns(pod, self._settings.pace)) is not None
        ]
        self._reports = [
            (at_ns, name) for name in state.nodes() if (at_ns := report_ns(name, state, self._settings)) is not None
        ]
        heapq.heapify(self._pods)
        heapq.heapify(self._reports)

    def learn(self, event: Event) -> None:
        """Take over what an event of the own log makes due."""
        if isinstance(event, PodObserved):
            at_ns = due_ns(event.object, self._settings.pace)
            if at_ns is not None:
                heapq.heappush(self._pods, (at_ns, event.pod))
        elif self._settings.report_interval_s:
            if isinstance(event, NodeMetricObserved):
                heapq.heappush(self._reports, (_next_report_ns(event.object, self._settings), event.node))
            elif isinstance(event, NodeObserved):
                heapq.heappush(self._reports, (0, event.node))

    def pods_due(self, now_ns: int, limit: int) -> list[str]:
        """Take off the keys of pods that change by now, at most `limit`."""
        return _take(self._pods, now_ns, limit)

    def reports_due(self, now_ns: int, limit: int) -> list[str]:
        """Take off the nodes that report by now, at most `limit`."""
        return _take(self._reports, now_ns, limit)

    @property
    def next_ns(self) -> int | None:
        """The next instant at which something is due."""
        return min((heap[0][0] for heap in (self._pods, self._reports) if heap), default=None)


def report_ns(node: str, state: SimulatorState, settings: SimulatorSettings) -> int | None:
    """When a node reports next; None when reports are off. A node that has not reported does so at once."""
    if not settings.report_interval_s:
        return None
    held = state.node_metrics().get(node)
    return _next_report_ns(held, settings) if held else 0


def _next_report_ns(report: NodeMetric, settings: SimulatorSettings) -> int:
    """Each node has a phase of its own, so that reports spread over the interval."""
    if not report.status.update_time:
        return 0
    interval_s = settings.report_interval_s
    phase_s = text_hash(report.metadata.name) % interval_s
    last_s = instant_ns(report.status.update_time) // SECOND
    return ((last_s - phase_s) // interval_s * interval_s + interval_s + phase_s) * SECOND


def _take(heap: list[tuple[int, str]], now_ns: int, limit: int) -> list[str]:
    due: dict[str, None] = {}
    while heap and heap[0][0] <= now_ns and len(due) < limit:
        due[heapq.heappop(heap)[1]] = None
    return list(due)
