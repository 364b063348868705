"""What the scheduler's state keeps of nodes and reports, and what it notes for whoever follows it."""

from typing import NamedTuple

from shared.kube.node import Node, NodeMetric


class NodeRecord:
    """A node as last observed, and per class of change the `cluster` seq of the last one."""

    __slots__ = ("changed", "node")

    def __init__(self, node: Node, changed: list[int]) -> None:
        self.node = node
        self.changed = changed


class MetricRecord(NamedTuple):
    """A node's newest NodeMetric, and the newest `status.updateTime` it ever had: one without it keeps the last."""

    metric: NodeMetric
    updated: str


class DirtySet:
    """What has changed since the index last looked, each name once, in order."""

    __slots__ = ("metrics", "nodes", "objects", "pods")

    def __init__(self) -> None:
        self.nodes: dict[str, None] = {}
        self.objects: dict[tuple[str, str], None] = {}  # (resource, key)
        self.metrics: dict[str, None] = {}
        self.pods: dict[str, None] = {}
