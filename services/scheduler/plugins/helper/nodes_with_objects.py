"""Nodes by row, each with the object that has its name, such as its Device: either may be observed first."""

from typing import Generic, TypeVar

from shared.kube.node import Node

Object = TypeVar("Object")


class NodesWithObjects(Generic[Object]):
    """The nodes and the objects that are there."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._rows: dict[str, int] = {}
        self._objects: dict[str, Object] = {}

    def set_node(self, row: int, node: Node | None) -> None:
        """Sets the node in the row, None when it is deleted."""
        before = self._nodes.pop(row, None)
        if before is not None and self._rows.get(before.metadata.name) == row:
            del self._rows[before.metadata.name]
        if node is not None:
            self._nodes[row] = node
            self._rows[node.metadata.name] = row

    def set_object(self, name: str, there: Object | None) -> int | None:
        """Sets the object of that name, None when it is deleted; returns the row of its node, None without a node."""
        self._objects.pop(name, None)
        if there is not None:
            self._objects[name] = there
        return self._rows.get(name)

    def node(self, row: int) -> Node | None:
        """Returns the node in the row."""
        return self._nodes.get(row)

    def object_of(self, row: int) -> Object | None:
        """Returns the object of the node in the row; None without a node or an object."""
        node = self._nodes.get(row)
        return None if node is None else self._objects.get(node.metadata.name)
