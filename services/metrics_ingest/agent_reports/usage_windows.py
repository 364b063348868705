"""Usage windows of one node: its newest samples, and sums by pod. A cache, filled by reports and never stored.

Source: spec/slo-controller.md 1.3.
"""

from collections import deque
from sys import intern
from typing import NamedTuple

from services.metrics_ingest.agent_reports.aggregation_policy import Policy
from services.metrics_ingest.agent_reports.app_zone_gpu_windows import (
    NOTHING,
    ExtraMetrics,
    ExtraMetricsWindow,
    has_extra_metrics,
)
from services.metrics_ingest.agent_reports.node_usage_series import MILLION, NodeUsageSeries
from services.metrics_ingest.agent_reports.pod_usage_means import PodPiece, PodUsageMeans, piece_of
from shared.agents.report import Report
from shared.events.metrics import Usage, WindowUsage


class AggregatedUsage(NamedTuple):
    """The aggregated usage of a node at an instant.

    Attributes:
        pods: uid -> mean over the aggregate window.
        extra: metrics besides node and pods, over the same window.
    """

    node: str
    at_ns: int
    usage: Usage
    system: Usage
    best_effort: Usage
    windows: tuple[WindowUsage, ...]
    pods: dict[str, Usage]
    extra: ExtraMetrics = NOTHING


class _Piece(NamedTuple):
    """The pods' sums of one report."""

    middle_ns: int
    pods: PodPiece


class NodeWindows:
    """The newest reports of one node.

    Attributes:
        at_ns: the end of the newest report.
        last_report_ns: arrival of the last report, by our clock.
    """

    __slots__ = (
        "_best_effort",
        "_extra",
        "_known",
        "_node",
        "_pieces",
        "_sums",
        "_system",
        "at_ns",
        "last_report_ns",
        "node",
    )

    def __init__(self, node: str) -> None:
        self.node = node
        self.at_ns = 0
        self.last_report_ns = 0
        self._node = NodeUsageSeries()
        self._system = NodeUsageSeries()
        self._best_effort = NodeUsageSeries()
        self._extra: ExtraMetricsWindow | None = None  # made by the first report that has any
        self._known: dict[tuple[str, int], int] = {}  # (boot, seq) of the reports added -> the end of their interval
        self._pieces: deque[_Piece] = deque()  # of the aggregate window, by the middle of their interval
        self._sums = PodUsageMeans()  # over the pieces

    def contains(self, report: Report) -> bool:
        """Reports whether this very report was added before."""
        return (report.boot, report.seq) in self._known

    def add(self, report: Report) -> None:
        """Adds a report's samples; reports may come in any order."""
        begins_ns = report.begins_ns
        self._known[report.boot, report.seq] = report.at_ns
        self._node.add(report.node_usage, begins_ns)
        self._system.add(report.system_usage, begins_ns)
        self._best_effort.add(report.best_effort_usage, begins_ns)
        piece = self._piece(report)
        if self._pieces and piece.middle_ns < self._pieces[-1].middle_ns:
            self._pieces = deque(sorted((*self._pieces, piece), key=lambda each: each.middle_ns))
        else:
            self._pieces.append(piece)
        self._sums.count(piece.pods, +1)
        if self._extra is not None or has_extra_metrics(report):
            self._extra = self._extra or ExtraMetricsWindow()
            self._extra.add(report, piece.middle_ns)
        self.at_ns = max(self.at_ns, report.at_ns)

    def measure(self, policy: Policy) -> AggregatedUsage:
        """Aggregates the windows as of the newest report, after dropping older samples."""
        self.forget(policy)
        at_ms = self.at_ns // MILLION
        from_ms = at_ms - policy.aggregate_s * 1000
        return AggregatedUsage(
            self.node,
            self.at_ns,
            self._node.mean(from_ms, at_ms),
            self._system.mean(from_ms, at_ms),
            self._best_effort.mean(from_ms, at_ms),
            tuple(
                WindowUsage(
                    length_s,
                    self._node.window(at_ms, length_s * 1000),
                    self._system.window(at_ms, length_s * 1000),
                )
                for length_s in policy.windows_s
            ),
            self._sums.means(),
            NOTHING if self._extra is None else self._extra.measure(),
        )

    def forget(self, policy: Policy) -> None:
        """Drops samples that are too old for every window."""
        at_ms = self.at_ns // MILLION
        mean_ms, longest_ms = policy.aggregate_s * 1000, policy.longest_s * 1000
        self._node.drop_before(at_ms - longest_ms)
        self._system.drop_before(at_ms - longest_ms)
        self._best_effort.drop_before(at_ms - mean_ms)
        earliest_ns = (at_ms - mean_ms) * MILLION
        while self._pieces and self._pieces[0].middle_ns < earliest_ns:
            self._sums.count(self._pieces.popleft().pods, -1)
        if self._extra is not None:
            self._extra.drop_before(earliest_ns)
        ended = [known for known, at_ns in self._known.items() if at_ns < (at_ms - longest_ms) * MILLION]
        for known in ended:
            del self._known[known]

    def _piece(self, report: Report) -> _Piece:
        # A uid comes with each report; interned, it is stored once.
        uids = tuple([intern(pod.uid) for pod in report.pods])
        if self._pieces and self._pieces[-1].pods.uids == uids:
            uids = self._pieces[-1].pods.uids
        return _Piece(report.begins_ns + report.interval_ns // 2, piece_of(report.pods, uids))
