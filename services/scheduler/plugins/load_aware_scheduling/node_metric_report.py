"""A node's report as vectors, and what one pod adds to the load that the report shows.

A vector holds one integer per resource of the arguments, in their sorted order: cpu in milli-cores, the rest in whole
units. Plain tuples, because they are short and an event changes one node.

Source: spec/scheduler-core.md 3.3, 3.4; upstream pkg/scheduler/plugins/loadaware/pod_assign_cache.go.
"""

from collections.abc import Mapping
from itertools import repeat
from typing import NamedTuple

from services.scheduler.plugins.load_aware_scheduling.amount_bounds import bounded
from services.scheduler.plugins.load_aware_scheduling.args import LoadAwareArgs
from services.scheduler.plugins.load_aware_scheduling.thresholds import Window
from shared.domain.priority import Priority
from shared.kube.instants import SECOND, BadTime, duration_ns, instant_ns
from shared.kube.node import AggregatedUsage, NodeMetric, PodUsage, ResourceMap
from shared.kube.quantity import BadQuantity, amount, nanos

Vector = tuple[int, ...]

NEVER_NS = -62_135_596_800 * SECOND
"""The clock of a node that has never said when it reported: the first instant of year 1."""

_DEFAULT_INTERVAL_S = 60


class Report(NamedTuple):
    """What a node reported.

    Attributes:
        clock_ns: the report's own time, or that of the last one that had one, or NEVER_NS.
        updated_ns: the report's own time; None when it has none, which counts as expired.
        interval_ns: how far a report may lag behind what it measures.
        usage: of the whole node; None when the report has no node part.
        windows: usage by percentile and window; duration 0 is the longest window of that percentile.
        system: of what runs outside of pods, as far as it counts as prod.
        pods: `namespace/name` -> what the node reported of it, of pods with any usage; read when somebody asks, for most are never asked for.
    """

    clock_ns: int
    updated_ns: int | None
    interval_ns: int
    usage: Vector | None
    windows: Mapping[Window, Vector]
    system: Vector
    pods: Mapping[str, PodUsage]


class PodShare(NamedTuple):
    """What one assigned pod adds, each None where it adds nothing.

    Attributes:
        prod_usage: to what prod pods are measured to use.
        node_delta: to what the node is measured to use, because the report cannot contain it yet.
        prod_delta: the same, to what prod pods are measured to use.
        estimated: its estimate, for nodes of which nothing usable is measured.
    """

    prod_usage: Vector | None = None
    node_delta: Vector | None = None
    prod_delta: Vector | None = None
    estimated: Vector | None = None


def report_time_ns(metric: NodeMetric) -> int | None:
    """The report's own time, when it has one that can be read."""
    text = metric.status.update_time
    try:
        return instant_ns(text) if text else None
    except BadTime:
        return None


def read_report(metric: NodeMetric, resources: tuple[str, ...], args: LoadAwareArgs, earlier_ns: int | None) -> Report:
    """Read a NodeMetric.

    Args:
        earlier_ns: the time of the node's last report that had one; it stays in force when this one has none.
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
        pods={
            f"{pod.namespace}/{pod.name}": pod
            for pod in status.pods_metric
            if pod.pod_usage is not None and pod.pod_usage.resources
        },
    )


def base_load(report: Report, window: Window | None) -> Vector | None:
    """The node's measured usage that assigned pods are added to; None: nothing fits, count their estimates alone."""
    if window is None:
        return report.usage
    measured = report.windows.get(window)
    return report.usage if measured is None and not window.duration_ns else measured


def share_of_pod(
    report: Report | None,
    pod: str,
    estimate: Vector | None,
    assigned_ns: int,
    deadline_ns: int | None,
    *,
    is_prod: bool,
    resources: tuple[str, ...],
) -> PodShare:
    """What an assigned pod adds to the load of its node.

    Its estimate counts in so far as it exceeds the measured usage, and only while the report cannot be trusted to
    contain it: the pod is not in it, came at most an interval before it, or its estimate is asked to count longer.

    Args:
        pod: `namespace/name`.
    """
    if report is None:
        return PodShare(estimated=estimate)
    reported = report.pods.get(pod)
    usage = None if reported is None else to_vector(reported.pod_usage, resources)
    counted_as_prod = is_prod and reported is not None and reported.priority == Priority.PROD
    prod_usage = usage if counted_as_prod else None
    if estimate is None:
        return PodShare(prod_usage=prod_usage)
    uncertain = (
        usage is None
        or report.clock_ns - report.interval_ns < assigned_ns
        or (deadline_ns is not None and deadline_ns > report.clock_ns)
    )
    delta = _excess(estimate, usage) if uncertain else None
    if not is_prod:
        prod_delta = None
    elif usage is not None and not counted_as_prod:
        prod_delta = _excess(estimate, None)  # measured, but not as prod: among prod pods it is not measured at all
    else:
        prod_delta = delta
    return PodShare(prod_usage, delta, prod_delta, estimate)


def to_vector(usage: ResourceMap | None, resources: tuple[str, ...]) -> Vector:
    """Amounts in the order of `resources`, 0 where none is stated, or where one cannot be read."""
    annotated = usage.resources if usage else None
    if not annotated:
        return (0,) * len(resources)
    return tuple(_amount(name, annotated.get(name)) for name in resources)


def _amount(name: str, text: str | None) -> int:
    try:
        return bounded(amount(name, nanos(text))) if text else 0
    except BadQuantity:
        return 0


def _excess(estimate: Vector, usage: Vector | None) -> Vector | None:
    """By how much the estimate exceeds the usage, resource by resource; None when it does nowhere."""
    excess = tuple(max(0, estimated - used) for estimated, used in zip(estimate, usage or repeat(0), strict=False))
    return excess if any(excess) else None


def _windows(reported: tuple[AggregatedUsage, ...], resources: tuple[str, ...]) -> dict[Window, Vector]:
    windows: dict[Window, Vector] = {}
    longest: dict[str, int] = {}
    for aggregated in reported:
        try:
            length = duration_ns(aggregated.duration)
        except BadTime:  # the API takes any text here; what is no window is asked for by nobody
            continue
        for kind, usage in (aggregated.usage or {}).items():
            if not usage.resources:
                continue
            windows[Window(kind, length)] = vector = to_vector(usage, resources)
            if length >= longest.get(kind, 0):
                longest[kind] = length
                windows[Window(kind, 0)] = vector
    return windows
