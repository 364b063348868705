"""Nodes of which only the amounts matter, as the `preempt` cases have them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shared.domain.amounts import total
from shared.domain.pod_requests import pod_requests, whole
from shared.kube.pod import Pod
from shared.kube.quantity import amounts

RESOLVED_BY_NOBODY = "UnschedulableAndUnresolvable"
"""The status of a node on which no pod that goes makes room."""


class NodeCapacity:
    """Nodes and the pods on them.

    Attributes:
        allocatable: node -> resource -> amount.
        pods: node -> the pods that run there.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        added = [event["node"] for event in given["events"] if event["type"] == "nodeAdd"]
        self.allocatable = {node["metadata"]["name"]: amounts(node["status"]["allocatable"]) for node in added}
        self.pods: dict[str, list[Pod]] = {name: [] for name in self.allocatable}
        for event in given["events"]:
            if event["type"] == "podAdd":
                pod = msgspec.convert(event["pod"], Pod)
                if pod.spec.node_name in self.pods:
                    self.pods[pod.spec.node_name].append(pod)

    def status(self, node: str, pod: Pod, without: Sequence[str] = ()) -> str:
        """Returns the status of a node for a pod when some of its pods are gone."""
        there = [other for other in self.pods[node] if other.metadata.key not in without]
        used = total(whole(pod_requests(other)) for other in there)
        free = self.allocatable[node]
        is_short = len(there) + 1 > free.get("pods", 0)
        for name, size in whole(pod_requests(pod)).items():
            if size > free.get(name, 0):
                return RESOLVED_BY_NOBODY
            is_short |= size > 0 and size > free.get(name, 0) - used.get(name, 0)
        return "Unschedulable" if is_short else "Success"
