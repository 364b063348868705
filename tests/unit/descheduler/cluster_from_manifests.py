"""A small cluster of the manifests in a document, as the simulated cluster of `koord up` has it."""

from collections.abc import Mapping
from typing import Any

import yaml
from msgspec.structs import replace

from services.simulator.api.object_conversion import typed
from services.simulator.api.replica_set_admission import new_pod
from services.simulator.api.resource_kinds import NODES, PODS
from services.simulator.kubelet.usage_reports import LOAD, USES
from shared.domain.pod_requests import pod_requests, whole
from shared.events.cluster import NodeObserved, ObjectObserved, PodObserved
from shared.kube.node import Node
from shared.kube.pod import Pod, PodCondition, PodStatus
from shared.kube.resource_names import POD_GROUPS
from tests.unit.descheduler.small_cluster import SmallCluster


class ManifestCluster(SmallCluster):
    """A cluster of nodes, pods, PodGroups and ReplicaSets, whose pods are `NAME-0` and so on."""

    def apply(self, text: str, on: Mapping[str, str]) -> None:
        """Applies manifests.

        Args:
            on: pod -> its node; a pod without one waits.
        """
        for body in yaml.safe_load_all(text):
            name = body["metadata"]["name"]
            body["metadata"]["uid"] = f"uid-{name}"
            match body["kind"]:
                case "Node":
                    node = typed(NODES, body)
                    assert isinstance(node, Node)
                    status = replace(node.status, allocatable=node.status.capacity)
                    self._observe(NodeObserved(node=name, object=replace(node, status=status)))
                case "Pod":
                    pod = typed(PODS, body)
                    assert isinstance(pod, Pod)
                    self._put(pod, on)
                case "PodGroup":
                    self._object(POD_GROUPS, name, body)
                case _:
                    self._object("replicasets.apps", name, body)
                    for number in range(body["spec"]["replicas"]):
                        self._put(new_pod(body, f"{name}-{number}"), on)

    def _object(self, resource: str, name: str, body: dict[str, Any]) -> None:
        uid = body["metadata"]["uid"]
        self._observe(ObjectObserved(resource=resource, name=f"default/{name}", uid=uid, object=body))

    def _put(self, given: Pod, on: Mapping[str, str]) -> None:
        name, ready = given.metadata.name, PodCondition(type="Ready", status="True")
        status = PodStatus(phase="Running", conditions=(ready,)) if name in on else PodStatus(phase="Pending")
        metadata = replace(given.metadata, uid=name, creation_timestamp=self.ago(0))
        spec = replace(given.spec, node_name=on.get(name, ""), priority=0)
        pod = self._pods[name] = Pod(metadata=metadata, spec=spec, status=status)
        self._observe(PodObserved(pod=f"default/{name}", pod_uid=name, object=pod))

    def report_all(self, **measured: int) -> None:
        """Reports of all nodes: pods use what their annotations have of their requests, or what is given.

        Args:
            measured: milli-cores by pod, with `_` for `-`.
        """
        for node, body in self.state.cluster.nodes.items():
            there = [pod for pod in self._pods.values() if pod.spec.node_name == node]
            used = {pod.metadata.name: measured.get(pod.metadata.name.replace("-", "_"), _used(pod)) for pod in there}
            load = int((body.metadata.annotations or {}).get(LOAD, "0"))
            self.report(node, used, system=load * 10_000 // 100)


def _used(pod: Pod) -> int:
    return whole(pod_requests(pod))["cpu"] * int((pod.metadata.annotations or {}).get(USES, "0")) // 100
