"""A node's newest measurement: its NodeMetric object or the newest recorded report, whichever is younger by its own
time.

Both may hold the same report, or reports by different agents (a NodeMetric that koordlet writes; two shards after the
number of shards changed). The State keeps the newest of each context; this is a function of all of them.
"""

from collections.abc import Mapping

from services.scheduler.state.usage_records import MetricRecord, ReportRecord
from shared.domain.node_metric_status import status_of
from shared.kube.instants import BadTime, instant_ns
from shared.kube.meta import Metadata
from shared.kube.node import MetricCollectPolicy, NodeMetric, NodeMetricSpec


def newest(object_: MetricRecord | None, reports: Mapping[str, ReportRecord]) -> MetricRecord | None:
    """Returns the newest measurement of a node; None when there is none.

    An object has its time in whole seconds, so the recorded report counts where both hold the same report. The object's
    spec holds for either.

    Args:
        object_: the NodeMetric.
        reports: context -> the newest report that it holds of the node.
    """
    if not reports:
        return object_
    _, (report, pods) = youngest(reports)
    if object_ is not None and _time_ns(object_) >= report.at_ns:
        return object_
    spec = object_.metric.spec if object_ is not None else NodeMetricSpec()
    if spec.metric_collect_policy is None:
        policy = MetricCollectPolicy(
            aggregate_duration_seconds=report.aggregate_s, report_interval_seconds=report.interval_s
        )
        spec = NodeMetricSpec(metric_collect_policy=policy)
    status = status_of(report)
    metric = NodeMetric(metadata=Metadata(name=report.node), spec=spec, status=status)
    return MetricRecord(metric, status.update_time or "", pods)


def youngest(reports: Mapping[str, ReportRecord]) -> tuple[str, ReportRecord]:
    """Returns (context, report) of the youngest report by its own time; there is at least one."""
    return max(reports.items(), key=_age)


def _age(entry: tuple[str, ReportRecord]) -> tuple[int, str]:
    return entry[1].report.at_ns, entry[0]


def _time_ns(metric_record: MetricRecord) -> int:
    try:
        return instant_ns(metric_record.updated) if metric_record.updated else -1
    except BadTime:
        return -1
