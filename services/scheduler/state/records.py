"""Records of nodes and reports in the State, and the set of names that a cache has yet to read."""

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


class DirtySet:
    """The names that changed since a cache last settled, each once, in order of the first change."""

    __slots__ = ("metrics", "nodes", "objects", "pods")

    def __init__(self) -> None:
        self.nodes: dict[str, None] = {}
        self.objects: dict[tuple[str, str], None] = {}  # (resource, key)
        self.metrics: dict[str, None] = {}
        self.pods: dict[str, None] = {}
