"""Record of a node in the State."""

from shared.kube.node import Node


class NodeRecord:
    """A node as last observed, and the `cluster` seq of the last event per ClusterEvent."""

    __slots__ = ("changed", "node")

    def __init__(self, node: Node, changed: list[int]) -> None:
        self.node = node
        self.changed = changed
