"""Timers of pods and nodes, derived from the State and the settings, so that no step has to scan all objects."""

import heapq

from services.simulator.kubelet.pod_lifecycle import next_change_ns
from services.simulator.seeded_random import text_hash
from services.simulator.settings import SimulatorSettings
from services.simulator.state import SimulatorState
from shared.events import Event
from shared.events.cluster import NodeMetricObserved, NodeObserved, PodObserved
from shared.kube.instants import SECOND, instant_ns
from shared.kube.node import NodeMetric


class Timers:
    """The next instant of each pod and node. An outdated entry is harmless: every expired timer is checked again."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self._settings = settings
        self._pods: list[tuple[int, str]] = []
        self._reports: list[tuple[int, str]] = []

    def load(self, state: SimulatorState) -> None:
        """Rebuilds all timers from the State."""
        self._pods = [
            (at_ns, key)
            for key, pod in state.pods().items()
            if (at_ns := next_change_ns(pod, self._settings.timings)) is not None
        ]
        self._reports = [
            (at_ns, name) for name in state.nodes() if (at_ns := report_ns(name, state, self._settings)) is not None
        ]
        heapq.heapify(self._pods)
        heapq.heapify(self._reports)

    def learn(self, event: Event) -> None:
        """Adds the timer that an event of the own log starts."""
        if isinstance(event, PodObserved):
            at_ns = next_change_ns(event.object, self._settings.timings)
            if at_ns is not None:
                heapq.heappush(self._pods, (at_ns, event.pod))
        elif self._settings.report_interval_s:
            if isinstance(event, NodeMetricObserved):
                heapq.heappush(self._reports, (_next_report_ns(event.object, self._settings), event.node))
            elif isinstance(event, NodeObserved):
                heapq.heappush(self._reports, (0, event.node))

    def pods_due(self, now_ns: int, limit: int) -> list[str]:
        """Removes and returns the keys of pods that change by now, at most `limit`."""
        return _take(self._pods, now_ns, limit)

    def reports_due(self, now_ns: int, limit: int) -> list[str]:
        """Removes and returns the nodes that report by now, at most `limit`."""
        return _take(self._reports, now_ns, limit)

    @property
    def next_ns(self) -> int | None:
        """The instant of the next timer."""
        return min((heap[0][0] for heap in (self._pods, self._reports) if heap), default=None)


def report_ns(node: str, state: SimulatorState, settings: SimulatorSettings) -> int | None:
    """Returns the instant of a node's next report; None when reports are off. A new node reports at once."""
    if not settings.report_interval_s:
        return None
    stored = state.node_metrics().get(node)
    return _next_report_ns(stored, settings) if stored else 0


def _next_report_ns(report: NodeMetric, settings: SimulatorSettings) -> int:
    """Returns the instant of the next report. Each node has a phase of its own, so that reports spread over the interval."""
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
