"""A pod of this node, as strategies see it: what the cluster says, and which of its containers the node runs."""

from collections.abc import Mapping
from typing import NamedTuple

from shared.kube.pod import Pod


class NodePod(NamedTuple):
    """A pod.

    Attributes:
        ids: name of a container -> its id, for those that the node has made.
        running: names of those that run.
    """

    pod: Pod
    ids: Mapping[str, str]
    running: frozenset[str]


def is_active(pod: Pod) -> bool:
    """Whether a pod has still work to do."""
    return pod.status.phase in {"Pending", "Running"}
