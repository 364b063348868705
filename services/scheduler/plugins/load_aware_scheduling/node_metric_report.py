"""A node's NodeMetric report as vectors.

A vector holds one integer per resource of the arguments, in their sorted order: cpu in milli-cores, the rest in whole
units. Plain tuples, because they are short and an event changes one node.

Source: spec/scheduler-core.md 3.3, 3.4; upstream pkg/scheduler/plugins/loadaware/pod_assign_cache.go.
"""

from collections.abc import Mapping
from typing import NamedTuple

from services.scheduler.plugins.load_aware_scheduling.args import LoadAwareArgs
from services.scheduler.plugins.load_aware_scheduling.int64_bound import bounded
from services.scheduler.plugins.load_aware_scheduling.node_thresholds import Window
from services.scheduler.state.packed_reported_pods import Amount, ReportedPods, encoded_usages, reported_pods
from shared.kube.instants import SECOND, BadTime, duration_ns, instant_ns
from shared.kube.node import AggregatedUsage, NodeMetric, ResourceMap
from shared.kube.quantity import BadQuantity, amount, nanos

Vector = tuple[int, ...]

NEVER_NS = -62_135_596_800 * SECOND
"""The clock of a node without any report time: the first instant of year 1."""

_DEFAULT_INTERVAL_S = 60


class Report(NamedTuple):
    """A node's report.

    Attributes:
        clock_ns: the report's own time, or that of the last report with a time, or NEVER_NS.
        updated_ns: the report's own time; None when it has none, which counts as expired.
        interval_ns: time by which a report may lag behind the measurement.
        usage: of the whole node; None when the report has no node part.
        windows: usage by percentile and window; duration 0 is the longest window of that percentile.
        system: usage outside of pods, as far as it counts as prod.
        pods: the pods with any usage; decoded one by one, because most are never read.
    """

    clock_ns: int
    updated_ns: int | None
    interval_ns: int
    usage: Vector | None
    windows: Mapping[Window, Vector]
    system: Vector
    pods: ReportedPods


def report_time_ns(metric: NodeMetric) -> int | None:
    """The report's own time, None without a readable one."""
    text = metric.status.update_time
    try:
        return instant_ns(text) if text else None
    except BadTime:
        return None


def read_report(
    metric: NodeMetric,
    resources: tuple[str, ...],
    args: LoadAwareArgs,
    earlier_ns: int | None,
    pods: bytes | None = None,
) -> Report:
    """Reads a NodeMetric.

    Args:
        earlier_ns: time of the node's last report with a time; it stays in force when this one has none.
        pods: its pods, for `reported_pods`; None: those that are in the object.
    """
    policy, status = metric.spec.metric_collect_policy, metric.status
    interval_s = policy.report_interval_seconds if policy else None
    updated_ns = report_time_ns(metric)
    clock_ns = updated_ns if updated_ns is not None else earlier_ns
    node = status.node_metric
    return Report(
        clock_ns=NEVER_NS if clock_ns is None else clock_ns,
        updated_ns=updated_ns,
        interval_ns=(_DEFAULT_INTERVAL_S if interval_s is None else interval_s) * SECOND,
        usage=to_vector(node.node_usage, resources) if node else None,
        windows=_windows(node.aggregated_node_usages, resources) if node else {},
        system=to_vector(node.system_usage if node and args.prod_usage_include_sys else None, resources),
        pods=reported_pods(encoded_usages(status.pods_metric) if pods is None else pods),
    )


def base_load(report: Report, window: Window | None) -> Vector | None:
    """The node's measured usage, to which assigned pods are added; None: only their estimates count."""
    if window is None:
        return report.usage
    measured = report.windows.get(window)
    return report.usage if measured is None and not window.duration_ns else measured


def to_vector(usage: ResourceMap | None, resources: tuple[str, ...]) -> Vector:
    """Amounts in the order of `resources`, 0 where one is missing or cannot be read."""
    annotated = usage.resources if usage else None
    return vector_of(annotated, resources) if annotated else (0,) * len(resources)


def vector_of(amounts: Mapping[str, Amount], resources: tuple[str, ...]) -> Vector:
    """Amounts in the order of `resources`, 0 where one is missing or cannot be read."""
    return tuple(_amount(name, amounts.get(name)) for name in resources)


def _amount(name: str, text: Amount | None) -> int:
    if isinstance(text, int):
        return bounded(text)
    try:
        return bounded(amount(name, nanos(text))) if text else 0
    except BadQuantity:
        return 0


def _windows(reported: tuple[AggregatedUsage, ...], resources: tuple[str, ...]) -> dict[Window, Vector]:
    windows: dict[Window, Vector] = {}
    longest: dict[str, int] = {}
    for aggregated in reported:
        try:
            length = duration_ns(aggregated.duration)
        except BadTime:  # the API accepts any text here; one that is no window is never looked up
            continue
        for kind, usage in (aggregated.usage or {}).items():
            if not usage.resources:
                continue
            windows[Window(kind, length)] = vector = to_vector(usage, resources)
            if length >= longest.get(kind, 0):
                longest[kind] = length
                windows[Window(kind, 0)] = vector
    return windows
