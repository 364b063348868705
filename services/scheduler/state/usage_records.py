"""Records of a node's measured usage in the State: its NodeMetric, and the report that metrics ingest recorded."""

from typing import NamedTuple

from services.scheduler.state.packed_reported_pods import NONE
from shared.domain.usage_plausibility import AmountRange
from shared.events.metrics import NodeReported
from shared.kube.node import NodeMetric


class MetricRecord(NamedTuple):
    """A node's newest NodeMetric.

    Attributes:
        metric: without its pods.
        updated: the newest `status.updateTime` that it ever had: an object without one keeps the last.
        pods: its pods, for `reported_pods`.
        is_ahead: its time is far after the instant at which it was observed, so that it is not believed.
        ranges: the range of each resource over all of its amounts.
    """

    metric: NodeMetric
    updated: str
    pods: bytes = NONE
    is_ahead: bool = False
    ranges: dict[str, AmountRange] = {}  # noqa: RUF012  # never changed


class ReportRecord(NamedTuple):
    """A recorded report without its pods; its pods, for `reported_pods`; the ranges of all of its amounts."""

    report: NodeReported
    pods: bytes = NONE
    ranges: dict[str, AmountRange] = {}  # noqa: RUF012  # never changed
