"""Nodes with the fields that decisions depend on; texts and amounts that nodes have in common are stored once."""

from sys import intern

from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus

MOST_AMOUNTS = 4096
"""Distinct resource lists that are remembered. Overcommitted nodes have amounts of their own, which change all the time."""


class SlimNodes:
    """Makes slim nodes."""

    def __init__(self) -> None:
        self._amounts: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}

    def slim(self, node: Node) -> Node:
        """Returns a node without the fields that nothing here depends on."""
        return Node(
            metadata=_metadata(node.metadata),
            status=NodeStatus(
                capacity=self._shared(node.status.capacity), allocatable=self._shared(node.status.allocatable)
            ),
        )

    def _shared(self, amounts: dict[str, str] | None) -> dict[str, str] | None:
        """Returns an equal dictionary of an earlier node, if there is one; these are never changed."""
        if not amounts:
            return amounts
        if len(self._amounts) >= MOST_AMOUNTS:
            self._amounts.clear()
        return self._amounts.setdefault(tuple(amounts.items()), amounts)


def _metadata(metadata: Metadata) -> Metadata:
    name = metadata.name
    # The label kubernetes.io/hostname has the name of the node, so this text is stored once, too.
    labels = metadata.labels and {
        intern(label): name if text == name else intern(text) for label, text in metadata.labels.items()
    }
    return Metadata(name=name, uid=metadata.uid, labels=labels, annotations=metadata.annotations)
