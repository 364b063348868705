"""A node with its pods and their measured usage: the input of the balance plugins.

Units: cpu in milli-cores, memory in bytes, everything else in whole units.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from shared.kube.meta import OwnerReference
from shared.kube.node import Node
from shared.kube.pod import Pod

Amounts = Mapping[str, int]

NO_AMOUNTS: Amounts = {}


class PodOnNode(msgspec.Struct, eq=False, gc=False):
    """A pod on a node.

    Attributes:
        key: `namespace/name`.
        is_prod: its priority class is prod.
        requests: its requests as a whole.
        constraints: equal for pods that the same nodes admit by labels and taints.
        demanded: the names of the resources that it requests, in their order, and the amounts of these.
        gang: `namespace/name` of its gang; empty without one. owner: its controller.
        protected: the rules that it was checked against last, and what they gave; see `migration/plugin_filter.py`.
        rank: a place for the first keys of the order in which pods leave (`pod_order.rank`), once they are known.
    """

    pod: Pod
    key: str
    is_prod: bool
    requests: Amounts
    constraints: bytes = b""
    demanded: tuple[tuple[str, ...], tuple[int, ...]] = ((), ())
    gang: str = ""
    owner: OwnerReference | None = None
    protected: tuple[object, str] | None = None
    rank: tuple[Any, ...] | None = None


class PodsOfNode(NamedTuple):
    """The pods of a node that have not ended.

    Attributes:
        pods: in a fixed order.
        requested: the sums of their requests.
    """

    pods: Sequence[PodOnNode]
    requested: Amounts


class MeasuredNode(NamedTuple):
    """A node.

    Attributes:
        capacity: the raw allocatable amounts, where the node's annotation has them, else `allocatable`.
        allocatable: what the node offers to pods, possibly amplified.
        requested: the sums of the requests of its pods.
        pods: those on it that have not ended, in a fixed order.
        pod_usage: `namespace/name` -> usage, of all pods in the report.
        total: usage outside of pods and of all pods in the report. prod_total: of its prod pods alone.
        reported_ns: the instant of the report; None without one that counts.
        peak: predicted peak of its prod pods with its system; a resource without a prediction is absent.
    """

    node: Node
    capacity: Amounts
    allocatable: Amounts
    requested: Amounts
    pods: Sequence[PodOnNode]
    pod_usage: Mapping[str, Amounts]
    total: Amounts
    prod_total: Amounts
    reported_ns: int | None
    peak: Amounts = NO_AMOUNTS

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name


def pods_of_node(pods: Iterable[PodOnNode]) -> PodsOfNode:
    """Returns the pods of a node with the sums of their requests."""
    listed = list(pods)
    return PodsOfNode(listed, _sum(NO_AMOUNTS, (each.requests for each in listed)))


def measured(
    node: Node,
    amounts: tuple[Amounts, Amounts],
    there: PodsOfNode,
    system: Amounts,
    pod_usage: Mapping[str, Amounts],
    reported_ns: int | None,
) -> MeasuredNode:
    """Returns a node with its usage summed up.

    Args:
        amounts: capacity, allocatable.
        system: usage outside of pods.
    """
    prod = (pod_usage[each.key] for each in there.pods if each.is_prod and each.key in pod_usage)
    total = _sum(system, pod_usage.values())
    prod_total = _sum(NO_AMOUNTS, prod)
    return MeasuredNode(node, *amounts, there.requested, there.pods, pod_usage, total, prod_total, reported_ns)


def _sum(first: Amounts, others: Iterable[Amounts]) -> Amounts:
    found = dict(first)
    for amounts in others:
        for name, size in amounts.items():
            found[name] = found.get(name, 0) + size
    return found
