"""The observed cluster in the form that the balance plugins read: nodes with their pods and their measured usage.

A node is made anew only when something about it has changed.
"""

from collections.abc import Iterable, Mapping

import msgspec

from services.descheduler.load_aware.measured_node import (
    NO_AMOUNTS,
    Amounts,
    MeasuredNode,
    PodOnNode,
    PodsOfNode,
    measured,
    pods_of_node,
)
from services.descheduler.state.observed_cluster import ObservedCluster
from shared.domain.gang import gang_of
from shared.domain.pod_requests import pod_requests
from shared.domain.priority import Priority, priority
from shared.kube.json_text import read_json
from shared.kube.node import RAW_ALLOCATABLE, Node
from shared.kube.pod import Pod
from shared.kube.quantity import BadQuantity, amount, amounts, nanos

SPARE_NODES = 1000
"""Everything is made anew when more nodes are kept than twice those that exist plus this: names of gone nodes add up."""

_ENCODER = msgspec.json.Encoder(order="sorted")


class MeasuredNodes:
    """The nodes of an observed cluster, kept from cycle to cycle."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[tuple[int, int], MeasuredNode]] = {}
        self._amounts: dict[str, tuple[Node, tuple[Amounts, Amounts]]] = {}
        self._pods: dict[str, tuple[int, PodsOfNode]] = {}

    def __len__(self) -> int:
        """Returns the number of nodes that are kept."""
        return len(self._nodes)

    def of(self, cluster: ObservedCluster, names: Iterable[str]) -> list[MeasuredNode]:
        """Returns nodes with the reports in force, sorted by name."""
        if len(self._nodes) > 2 * len(cluster.nodes) + SPARE_NODES:
            for known in (self._nodes, self._amounts, self._pods):
                known.clear()
        return [self._node(cluster, name) for name in sorted(names)]

    def _node(self, cluster: ObservedCluster, name: str) -> MeasuredNode:
        version = cluster.versions.get(name, 0), cluster.pods.versions.get(name, 0)
        known = self._nodes.get(name)
        if known is not None and known[0] == version:
            return known[1]
        node, report, there = cluster.nodes[name], cluster.report(name), self._pods_on(cluster, name)
        both = self._amounts_of(node)
        if report is None:
            found = measured(node, both, there, NO_AMOUNTS, {}, None)
        else:
            found = measured(node, both, there, report.system, report.pods, report.at_ns or None)
            found = found._replace(peak=report.peak) if report.peak else found
        self._nodes[name] = version, found
        return found

    def _amounts_of(self, node: Node) -> tuple[Amounts, Amounts]:
        """Returns capacity and allocatable of a node; a new report changes neither."""
        known = self._amounts.get(node.metadata.name)
        if known is None or known[0] is not node:
            known = self._amounts[node.metadata.name] = node, (capacity_of(node), allocatable_of(node))
        return known[1]

    def _pods_on(self, cluster: ObservedCluster, name: str) -> PodsOfNode:
        version = cluster.pods.versions.get(name, 0)
        known = self._pods.get(name)
        if known is None or known[0] != version:
            before = {id(each.pod): each for each in known[1].pods} if known else {}
            pods = (before.get(id(pod)) or pod_on_node(pod) for pod in cluster.pods.on_node(name))
            known = self._pods[name] = version, pods_of_node(pods)
        return known[1]


def pod_on_node(pod: Pod) -> PodOnNode:
    """Returns a pod with what the plugins read of it; requests that cannot be read count as none."""
    try:
        requests = {name: amount(name, size) for name, size in pod_requests(pod).items()}
    except BadQuantity:
        requests = {}
    spec, metadata = pod.spec, pod.metadata
    affinity = spec.affinity and spec.affinity.node_affinity
    constraints = b""
    if spec.node_selector or affinity or spec.tolerations:
        constraints = _ENCODER.encode((spec.node_selector, affinity, spec.tolerations))
    names = tuple(sorted(name for name, size in requests.items() if size > 0))
    return PodOnNode(
        pod,
        metadata.key,
        priority(pod) is Priority.PROD,
        requests,
        constraints,
        (names, tuple(requests[name] for name in names)),
        gang_of(metadata),
        metadata.controller,
    )


def capacity_of(node: Node) -> Amounts:
    """Returns the raw allocatable amounts of a node: those of its annotation if it can be read, else of its status."""
    text = (node.metadata.annotations or {}).get(RAW_ALLOCATABLE)
    if text:
        try:
            return amounts(read_json(text, dict[str, str]))
        except (msgspec.MsgspecError, BadQuantity):
            pass
    return allocatable_of(node)


def allocatable_of(node: Node) -> Amounts:
    """Returns the allocatable amounts of a node; an amount that cannot be read is left out."""
    return _amounts(node.status.allocatable or {})


def _amounts(texts: Mapping[str, str]) -> Amounts:
    found = {}
    for name, text in texts.items():
        try:
            found[name] = amount(name, nanos(text))
        except BadQuantity:
            continue
    return found
