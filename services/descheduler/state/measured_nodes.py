"""The observed cluster in the form that the balance plugins read: nodes with their pods and their measured usage."""

from collections.abc import Iterable, Mapping

import msgspec

from services.descheduler.load_aware.measured_node import Amounts, MeasuredNode, PodOnNode
from services.descheduler.state.load_report import Used
from services.descheduler.state.observed_cluster import ObservedCluster
from shared.domain.pod_requests import pod_requests
from shared.domain.priority import Priority, priority
from shared.kube.instants import BadTime, instant_ns
from shared.kube.json_text import read_json
from shared.kube.node import Node, NodeMetric, ResourceMap
from shared.kube.pod import Pod
from shared.kube.quantity import BadQuantity, amount, amounts, nanos

RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
"""Annotation with the allocatable amounts of a node before they were amplified."""

_ENDED = ("Succeeded", "Failed")


def pod_on_node(pod: Pod) -> PodOnNode:
    """Returns a pod with what the plugins read of it; requests that cannot be read count as none."""
    try:
        requests = {name: amount(name, size) for name, size in pod_requests(pod).items()}
    except BadQuantity:
        requests = {}
    return PodOnNode(pod, pod.metadata.key, priority(pod) is Priority.PROD, requests)


def measured_node(node: Node, pods: Iterable[Pod], metric: NodeMetric | None) -> MeasuredNode:
    """Returns a node with the report of a NodeMetric object."""
    status = metric.status if metric else None
    part = status.node_metric if status else None
    live = [pod_on_node(pod) for pod in pods if pod.status.phase not in _ENDED]
    if status is None or part is None:
        return MeasuredNode(node, capacity_of(node), allocatable_of(node), live, {}, {}, None)
    usage = {f"{each.namespace}/{each.name}": _resources(each.pod_usage) for each in status.pods_metric}
    try:
        at_ns = instant_ns(status.update_time) if status.update_time else None
    except BadTime:
        at_ns = None
    return MeasuredNode(
        node, capacity_of(node), allocatable_of(node), live, _resources(part.system_usage), usage, at_ns
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


def _resources(given: ResourceMap | None) -> Amounts:
    return _amounts(given.resources or {}) if given else {}


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
    return {name: size for name, size in (("cpu", used.cpu), ("memory", used.memory)) if size is not None}


def measured_nodes(cluster: ObservedCluster, names: Iterable[str]) -> list[MeasuredNode]:
    """Returns nodes of the observed cluster with the reports in force, sorted by name."""
    found = []
    for name in sorted(names):
        node, report = cluster.nodes[name], cluster.report(name)
        live = [pod_on_node(pod) for pod in cluster.pods_on(name)]
        capacity, allocatable = capacity_of(node), allocatable_of(node)
        if report is None:
            found.append(MeasuredNode(node, capacity, allocatable, live, {}, {}, None))
            continue
        usage = {key: used_amounts(each) for key, each in report.pods.items()}
        at_ns = report.at_ns or None
        found.append(MeasuredNode(node, capacity, allocatable, live, used_amounts(report.system), usage, at_ns))
    return found
