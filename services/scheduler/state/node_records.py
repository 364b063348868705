"""Records of nodes and of their NodeMetrics in the State."""

from typing import NamedTuple

from shared.kube.node import Node, NodeMetric


class NodeRecord:
    """A node as last observed, and the `cluster` seq of the last event per ClusterEvent."""

    __slots__ = ("changed", "node")

    def __init__(self, node: Node, changed: list[int]) -> None:
        self.node = node
        self.changed = changed


class MetricRecord(NamedTuple):
    """A node's newest NodeMetric, and the newest `status.updateTime` that it ever had: an object without one keeps the
    last.
    """

    metric: NodeMetric
    updated: str
