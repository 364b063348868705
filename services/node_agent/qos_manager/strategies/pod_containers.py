"""A pod of this node with the ids and states of its containers, the input of strategies."""

from collections.abc import Mapping
from typing import NamedTuple

from shared.kube.pod import Pod


class NodePod(NamedTuple):
    """A pod with its containers on this node.

    Attributes:
        ids: name of a container -> its id, for those that the node has created.
        running: names of running containers.
    """

    pod: Pod
    ids: Mapping[str, str]
    running: frozenset[str]


def is_active(pod: Pod) -> bool:
    """Reports whether a pod is pending or running."""
    return pod.status.phase in {"Pending", "Running"}
