"""A node with its pods and their measured usage: the input of LowNodeLoad.

Units: cpu in milli-cores, memory in bytes, everything else in whole units.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shared.kube.node import Node
from shared.kube.pod import Pod

Amounts = Mapping[str, int]


class PodOnNode(NamedTuple):
    """A pod on a node that has not ended.

    Attributes:
        key: `namespace/name`.
        is_prod: its priority class is prod.
        requests: its requests as a whole.
    """

    pod: Pod
    key: str
    is_prod: bool
    requests: Amounts


class MeasuredNode(NamedTuple):
    """A node.

    Attributes:
        capacity: the raw allocatable amounts, where the node's annotation has them, else `allocatable`.
        allocatable: what the node offers to pods, possibly amplified.
        pods: those on it that have not ended, in a fixed order.
        system: usage outside of pods.
        pod_usage: `namespace/name` -> usage, of all pods in the report.
        reported_ns: the instant of the report; None without one that counts.
    """

    node: Node
    capacity: Amounts
    allocatable: Amounts
    pods: Sequence[PodOnNode]
    system: Amounts
    pod_usage: Mapping[str, Amounts]
    reported_ns: int | None

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name
