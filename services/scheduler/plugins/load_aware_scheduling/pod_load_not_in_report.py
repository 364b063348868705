"""The amounts that one assigned pod adds to the reported load of its node.

Source: spec/scheduler-core.md 3.4; upstream pkg/scheduler/plugins/loadaware/pod_assign_cache.go.
"""

from itertools import repeat
from typing import NamedTuple

from services.scheduler.plugins.load_aware_scheduling.node_metric_report import Report, Vector, vector_of
from shared.domain.priority import Priority


class PodShare(NamedTuple):
    """Amounts that one assigned pod adds, each None where it adds nothing.

    Attributes:
        prod_usage: to the usage of prod pods, as measured.
        node_delta: to the measured usage of the node, because the report cannot contain it yet.
        prod_delta: the same, to the measured usage of prod pods.
        estimated: its estimate, for nodes without a usable measurement.
    """

    prod_usage: Vector | None = None
    node_delta: Vector | None = None
    prod_delta: Vector | None = None
    estimated: Vector | None = None


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
    """The amounts that an assigned pod adds to the load of its node.

    Its estimate counts in so far as it exceeds the measured usage, and only while the report may not contain it: the
    pod is not in it, was assigned at most an interval before it, or its estimate window is not over.

    Args:
        pod: `namespace/name`.
    """
    if report is None:
        return PodShare(estimated=estimate)
    reported = report.pods.usage(pod)
    usage = None if reported is None else vector_of(reported.amounts, resources)
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
        prod_delta = _excess(estimate, None)  # measured, but not as prod: for the prod sums it counts as not measured
    else:
        prod_delta = delta
    return PodShare(prod_usage, delta, prod_delta, estimate)


def _excess(estimate: Vector, usage: Vector | None) -> Vector | None:
    """The excess of the estimate over the usage, resource by resource; None where there is none."""
    excess = tuple(max(0, estimated - used) for estimated, used in zip(estimate, usage or repeat(0), strict=False))
    return excess if any(excess) else None
