"""A recorded node as the SLO controller follows it: its objects are observed as events, its configuration is a
ConfigMap.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.slo_controller.config.slo_configmap import ActiveConfig
from services.slo_controller.overcommit.batch_and_mid_amounts_written_to_node import NORMALIZATION_RATIO, parse_ratio
from services.slo_controller.overcommit.calculate import NodeCalculation, calculate
from services.slo_controller.settings import SloSettings
from services.slo_controller.state.slo_state import SloState
from services.slo_controller.state.usage_report import UsageReport
from shared.admission.slo_config.document_validation import COLOCATION, NORMALIZATION
from shared.events import Event, RecordedEvent
from shared.events.cluster import NodeMetricObserved, NodeObserved, ObjectDeleted, ObjectObserved, PodObserved
from shared.kube.instants import instant_ns
from shared.kube.node import Node, NodeMetric
from shared.kube.node_resource_topology import CPU_BASIC_INFO
from shared.kube.pod import Pod
from shared.kube.resource_names import NODE_TOPOLOGIES

Given = Mapping[str, Any]


class RecordedNode:
    """One node with its pods, its report and its topology, and the controller's state over them.

    Attributes:
        now_ns: the instant of the pass.
        synced_ns: upstream's last write of the topology; None without one.
    """

    def __init__(self, given: Given) -> None:
        self._given = given
        self.node = msgspec.convert(given["node"], Node)
        self.name = self.node.metadata.name
        self.now_ns = instant_ns(given["now"])
        synced = given.get("nrtLastSync")
        self.synced_ns = None if synced is None else instant_ns(synced)
        self.state = SloState()
        ratio = (given.get("calculatedAnnotations") or {}).get(NORMALIZATION_RATIO)
        self._ratio = parse_ratio(ratio)
        self._observe(NodeObserved(node=self.name, object=self.node))
        for raw in given["pods"]:
            pod = msgspec.convert(raw, Pod)
            self._observe(PodObserved(pod=pod.metadata.key, pod_uid=pod.metadata.uid, object=pod))
        if metric := given.get("nodeMetric"):
            self._observe(NodeMetricObserved(node=self.name, object=msgspec.convert(metric, NodeMetric)))
        self._observe_topology(given.get("nodeResourceTopology") or {})

    @property
    def measured(self) -> UsageReport:
        """The report that counts."""
        return self.state.usage_report(self.name)[0]

    def calculated(self) -> NodeCalculation:
        """Calculates the node."""
        return calculate(self.state, ActiveConfig(self._texts()), self.name, SloSettings(), self.now_ns)

    def before_the_write(self) -> list[dict[str, Any]] | None:
        """Replaces or deletes the topology as the case does after the calculation; its zones then, None without one."""
        given = self._given
        if given.get("nrtGoneAtWrite"):
            self._observe(ObjectDeleted(resource=NODE_TOPOLOGIES, name=self.name, uid=""))
        elif replaced := given.get("nodeResourceTopologyAtWrite"):
            self._observe_topology(replaced)
        topology = self.state.topologies.get(self.name)
        return None if topology is None else topology.zones

    def _texts(self) -> dict[str, str]:
        """Returns the ConfigMap that gives this strategy and this cpu normalization ratio."""
        strategy = self._given["strategy"]
        if self._given.get("colocationDisabled"):
            strategy = strategy | {"enable": False}
        normalization = {"enable": self._ratio > 0, "defaultRatio": self._ratio}
        documents = {COLOCATION: strategy, NORMALIZATION: normalization}
        return {key: msgspec.json.encode(document).decode() for key, document in documents.items()}

    def _observe_topology(self, raw: Given) -> None:
        """Observes a topology, with a processor that cpu normalization can look up."""
        annotations = {CPU_BASIC_INFO: "{}"} if self._ratio > 0 else {}
        body = dict(raw) | {"metadata": {"name": self.name, "annotations": annotations}}
        self._observe(ObjectObserved(resource=NODE_TOPOLOGIES, name=self.name, uid="", object=body))

    def _observe(self, event: Event) -> None:
        seq = self.state.positions.get("cluster", 0) + 1
        self.state.apply(RecordedEvent(context="cluster", seq=seq, event=event, at_ns=0))
