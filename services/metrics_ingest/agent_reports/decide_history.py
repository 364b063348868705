"""Decisions on reports that an agent kept while it had no connection: usage of intervals that lie back."""

from collections.abc import Iterable, Mapping

from services.metrics_ingest.agent_reports.aggregation_policy import Policy
from services.metrics_ingest.agent_reports.decide_reports import node_reported
from services.metrics_ingest.agent_reports.metrics_ingest_state import ReportIngestState
from services.metrics_ingest.agent_reports.settings import IngestSettings
from services.metrics_ingest.agent_reports.usage_windows import NodeWindows
from shared.agents.backlog import Backlog
from shared.agents.report import BadReport, Report, decode
from shared.events.metrics import NodeHistoryReported
from shared.kube.instants import SECOND, instant_text


def is_recorded(recorded: Mapping[str, int], message: Backlog) -> bool:
    """Reports whether a message is a repeat of one that is in the log.

    Args:
        recorded: run of the node's agent -> number of its newest message in the log.
    """
    return message.seq <= recorded.get(message.boot, 0)


def believed(
    reports: Iterable[bytes], node: str, settings: IngestSettings, now_ns: int
) -> tuple[list[Report], list[BadReport]]:
    """Returns the reports of a message that are valid, and what is wrong with each of the others."""
    valid, faulty = [], []
    for data in reports:
        try:
            report = decode(data, node)
            _check_time(report, settings, now_ns)
            valid.append(report)
        except BadReport as error:
            faulty.append(error)
    return valid, faulty


def history(
    state: ReportIngestState, message: Backlog, reports: Iterable[Report], policy: Policy
) -> list[NodeHistoryReported]:
    """Returns the usage of each reporting interval, oldest first.

    Args:
        reports: those of the message that are believed, in any order.
        policy: of the node now.
    """
    of_interval = policy._replace(aggregate_s=policy.interval_s, windows_s=())
    intervals: dict[int, NodeWindows] = {}
    for report in reports:
        windows = intervals.setdefault(report.at_ns // (policy.interval_s * SECOND), NodeWindows(message.node))
        if not windows.contains(report):
            windows.add(report)
    events = []
    for _, windows in sorted(intervals.items()):
        found = node_reported(state, windows.measure(of_interval), of_interval)
        events.append(
            NodeHistoryReported(
                node=message.node,
                boot=message.boot,
                number=message.seq,
                at_ns=found.at_ns,
                interval_s=policy.interval_s,
                usage=found.usage,
                system=found.system,
                best_effort=found.best_effort,
                pods=found.pods,
                unmatched=found.unmatched,
            )
        )
    return events


def _check_time(report: Report, settings: IngestSettings, now_ns: int) -> None:
    late_ns = now_ns - report.at_ns
    if not -settings.max_clock_skew_s * SECOND <= late_ns <= settings.max_history_s * SECOND:
        raise BadReport(
            report.node,
            "at_ns",
            f"{instant_text(report.at_ns)} is ahead of our clock, or more than {settings.max_history_s} s back; set the node's clock",
        )
