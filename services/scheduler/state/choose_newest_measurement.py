"""A node's newest measurement: its NodeMetric object or the newest recorded report, whichever is younger by its own
time.

Both may hold the same report, or reports by different agents (a NodeMetric that koordlet writes; two shards after the
number of shards changed). The State keeps the newest of each context; this is a function of all of them.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from services.scheduler.state.usage_records import MetricRecord, ReportRecord
from shared.domain.node_metric_status import status_of
from shared.domain.usage_plausibility import amount_faults
from shared.kube.instants import BadTime, instant_ns
from shared.kube.meta import Metadata
from shared.kube.node import MetricCollectPolicy, NodeMetric, NodeMetricSpec, NodeMetricStatus


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
    _, (report, pods, ranges) = youngest(reports)
    if object_ is not None and not object_.is_ahead and update_time_ns(object_.updated) >= report.at_ns:
        return object_
    spec = object_.metric.spec if object_ is not None else NodeMetricSpec()
    if spec.metric_collect_policy is None:
        policy = MetricCollectPolicy(
            aggregate_duration_seconds=report.aggregate_s, report_interval_seconds=report.interval_s
        )
        spec = NodeMetricSpec(metric_collect_policy=policy)
    status = status_of(report)
    metric = NodeMetric(metadata=Metadata(name=report.node), spec=spec, status=status)
    return MetricRecord(metric, status.update_time or "", pods, ranges=ranges)


def believed(record: MetricRecord | None, capacity: Mapping[str, str] | None) -> MetricRecord | None:
    """Returns the measurement, without its status where that is implausible: it then counts as expired.

    Args:
        capacity: of the node; None where that is not known.
    """
    if record is None or not (record.is_ahead or any(amount_faults(record.ranges, capacity))):
        return record
    return MetricRecord(replace(record.metric, status=NodeMetricStatus()), "")


def youngest(reports: Mapping[str, ReportRecord]) -> tuple[str, ReportRecord]:
    """Returns (context, report) of the youngest report by its own time; there is at least one."""
    return max(reports.items(), key=_age)


def _age(entry: tuple[str, ReportRecord]) -> tuple[int, str]:
    return entry[1].report.at_ns, entry[0]


def update_time_ns(text: str | None) -> int:
    """Returns a report's own time; -1 without a readable one."""
    try:
        return instant_ns(text) if text else -1
    except BadTime:
        return -1
