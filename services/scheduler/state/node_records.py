"""Records of nodes and of their NodeMetrics in the State."""

from typing import NamedTuple

from services.scheduler.state.reported_pods import NONE
from shared.events.metrics import NodeReported
from shared.kube.node import Node, NodeMetric


class NodeRecord:
    """A node as last observed, and the `cluster` seq of the last event per ClusterEvent."""

    __slots__ = ("changed", "node")

    def __init__(self, node: Node, changed: list[int]) -> None:
        self.node = node
        self.changed = changed


class MetricRecord(NamedTuple):
    """A node's newest NodeMetric.

    Attributes:
        metric: without its pods.
        updated: the newest `status.updateTime` that it ever had: an object without one keeps the last.
        pods: its pods, for `reported_pods`.
    """

    metric: NodeMetric
    updated: str
    pods: bytes = NONE


class ReportRecord(NamedTuple):
    """A recorded report without its pods, and its pods, for `reported_pods`."""

    report: NodeReported
    pods: bytes = NONE
