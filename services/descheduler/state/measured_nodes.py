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
from services.descheduler.state.load_report import Used
from services.descheduler.state.observed_cluster import ObservedCluster
from shared.domain.pod_requests import pod_requests
from shared.domain.priority import Priority, priority
from shared.kube.instants import BadTime, instant_ns
from shared.kube.json_text import read_json
from shared.kube.node import RAW_ALLOCATABLE, Node, NodeMetric, ResourceMap
from shared.kube.pod import ENDED_PHASES, Pod
from shared.kube.quantity import BadQuantity, amount, amounts, nanos

_ENCODER = msgspec.json.Encoder(order="sorted")


class MeasuredNodes:
    """The nodes of an observed cluster, kept from cycle to cycle."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[int, MeasuredNode]] = {}
        self._pods: dict[str, tuple[int, PodsOfNode]] = {}

    def of(self, cluster: ObservedCluster, names: Iterable[str]) -> list[MeasuredNode]:
        """Returns nodes with the reports in force, sorted by name."""
        return [self._node(cluster, name) for name in sorted(names)]

    def _node(self, cluster: ObservedCluster, name: str) -> MeasuredNode:
        version = cluster.versions.get(name, 0)
        known = self._nodes.get(name)
        if known is not None and known[0] == version:
            return known[1]
        node, report, there = cluster.nodes[name], cluster.report(name), self._pods_on(cluster, name)
        both = capacity_of(node), allocatable_of(node)
        if report is None:
            found = measured(node, both, there, NO_AMOUNTS, {}, None)
        else:
            usage = {key: used_amounts(each) for key, each in report.pods.items()}
            found = measured(node, both, there, used_amounts(report.system), usage, report.at_ns or None)
        self._nodes[name] = version, found
        return found

    def _pods_on(self, cluster: ObservedCluster, name: str) -> PodsOfNode:
        version = cluster.pod_versions.get(name, 0)
        known = self._pods.get(name)
        if known is None or known[0] != version:
            before = {id(each.pod): each for each in known[1].pods} if known else {}
            pods = (before.get(id(pod)) or pod_on_node(pod) for pod in cluster.pods_on(name))
            known = self._pods[name] = version, pods_of_node(pods)
        return known[1]


def pod_on_node(pod: Pod) -> PodOnNode:
    """Returns a pod with what the plugins read of it; requests that cannot be read count as none."""
    try:
        requests = {name: amount(name, size) for name, size in pod_requests(pod).items()}
    except BadQuantity:
        requests = {}
    spec = pod.spec
    affinity = spec.affinity and spec.affinity.node_affinity
    constraints = b""
    if spec.node_selector or affinity or spec.tolerations:
        constraints = _ENCODER.encode((spec.node_selector, affinity, spec.tolerations))
    return PodOnNode(pod, pod.metadata.key, priority(pod) is Priority.PROD, requests, constraints)


def measured_node(node: Node, pods: Iterable[Pod], metric: NodeMetric | None) -> MeasuredNode:
    """Returns a node with the report of a NodeMetric object; of its pods those that have not ended."""
    status = metric.status if metric else None
    part = status.node_metric if status else None
    there = pods_of_node(pod_on_node(pod) for pod in pods if pod.status.phase not in ENDED_PHASES)
    both = capacity_of(node), allocatable_of(node)
    if status is None or part is None:
        return measured(node, both, there, NO_AMOUNTS, {}, None)
    usage = {f"{each.namespace}/{each.name}": _resources(each.pod_usage) for each in status.pods_metric}
    try:
        at_ns = instant_ns(status.update_time) if status.update_time else None
    except BadTime:
        at_ns = None
    return measured(node, both, there, _resources(part.system_usage), usage, at_ns)


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


def _resources(given: ResourceMap | None) -> Amounts:
    return _amounts(given.resources or {}) if given else NO_AMOUNTS


def _amounts(texts: Mapping[str, str]) -> Amounts:
    found = {}
    for name, text in texts.items():
        try:
            found[name] = amount(name, nanos(text))
        except BadQuantity:
            continue
    return found


def used_amounts(used: Used) -> Amounts:
    """Returns a used amount by resource."""
    if used.cpu is not None and used.memory is not None:
        return {"cpu": used.cpu, "memory": used.memory}
    return {name: size for name, size in (("cpu", used.cpu), ("memory", used.memory)) if size is not None}
