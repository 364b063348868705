"""The inputs of overcommitment: nodes, their pods, usage reports, the configuration, and earlier decisions.

Each context writes fields of its own. Values that need two contexts (the pods that were on a node when its report was
made) are computed on demand, in caches that are not part of the stored State.
"""

from typing import Any, ClassVar

import msgspec

from services.slo_controller.node_topology.zone_batch_resources import has_zones
from services.slo_controller.overcommit.node_capacity_and_reservation import capacity_of, reserved_of
from services.slo_controller.overcommit.unreported_pods import unreported_requests
from services.slo_controller.overcommit.usage_sums import UsageSums, sum_usage
from services.slo_controller.service_manifest import CONFIG_MAP
from services.slo_controller.state.node_topology_and_capacity_records import NodeResources, Topology
from services.slo_controller.state.pods_on_nodes import PodsOnNodes
from services.slo_controller.state.slim_node_copies import SlimNodes
from services.slo_controller.state.snapshot_schema import DECODER, ENCODER, FIELDS
from services.slo_controller.state.usage_report import NO_REPORT, UsageReport, report_of_event, report_of_node_metric
from shared.domain.own_desired_states import OwnDesiredStates, object_key
from shared.domain.usage_plausibility import ReportFault
from shared.events import Event, RecordedEvent
from shared.events.base import without_basis
from shared.events.cluster import (
    InitialListCompleted,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected
from shared.events.metrics import NodeReported, NodeReportsExpired
from shared.events.nodes import NodeTopologyRemoved, NodeTopologyReported
from shared.events.slo import (
    IgnoredReport,
    NodeOvercommitted,
    NodeReportsBelieved,
    NodeReportsIgnored,
    OvercommitmentFrozen,
    OvercommitmentResumed,
    RecommendationEnded,
    RecommendationUpdated,
)
from shared.kube.amounts_as_text import read_object
from shared.kube.node import Node, NodeMetricSpec
from shared.kube.node_resource_topology import Zone
from shared.kube.resource_names import DEVICES, NODE_METRICS, NODE_SLOS, NODE_TOPOLOGIES, RECOMMENDATIONS

NODES = "nodes"

FOLDED: dict[str, tuple[type[Event], ...]] = {
    "cluster": (
        NodeObserved, NodeDeleted, PodObserved, PodDeleted, NodeMetricObserved, NodeMetricDeleted, ObjectObserved,
        ObjectDeleted, InitialListCompleted,
    ),
    "metrics-*": (NodeReported, NodeReportsExpired),
    "nodes-*": (NodeTopologyReported, NodeTopologyRemoved),
    "slo": (
        ConfigApplied, ConfigRejected, NodeOvercommitted, NodeReportsIgnored, NodeReportsBelieved, OvercommitmentFrozen, OvercommitmentResumed, RecommendationUpdated, RecommendationEnded, FieldsDesired, ObjectDesired,
    ),
}  # fmt: skip
"""Context -> event types that the State folds; it ignores the others."""

GONE = "gone"
"""`why` of a NodeOvercommitted after its node was deleted."""


class SloState(OwnDesiredStates):
    """A fold over `cluster`, `metrics-*`, `nodes-*` and the controller's own `slo`.

    Attributes:
        nodes: name -> the node, without conditions and images.
        pods: the pods on nodes, with those that ended lately.
        node_metrics: node -> the report in its NodeMetric object.
        reports: node -> its newest report of `metrics-*`.
        newest_report_ns: node -> the newest instant it ever reported; also after its reports have expired.
        metric_specs: node -> spec of its NodeMetric; present exactly while the object exists.
        node_slos: node -> spec of its NodeSLO; present exactly while the object exists.
        topologies, devices: node -> those objects.
        reported_topologies: node -> the topology that its agent reported.
        config_data: data of the newest ConfigMap; None before one was observed. config_uid: its uid.
        listed: the gateway has listed the whole cluster once.
        texts: documents in force, by key.
        config_digest: digest of `texts`; empty before any document was applied.
        rejected_digest: digest of the newest ConfigMap with a rejected document.
        decided: node -> the newest decision.
        ignored: node -> the reasons for which its reports are ignored.
        frozen: many nodes are silent at once, so overcommitment is frozen.
        recommendations: `namespace/name` -> `spec.target` of a Recommendation.
        recommended: `namespace/name` -> the newest recommendation.
        changed: nodes that changed since the last decision about them; derived from the fields above.
    """

    SCHEMA: ClassVar[int] = 12

    def __init__(self) -> None:
        super().__init__()
        self.positions: dict[str, int] = {}
        self.nodes: dict[str, Node] = {}
        self.pods = PodsOnNodes()
        self.node_metrics: dict[str, UsageReport] = {}
        self.reports: dict[str, UsageReport] = {}
        self.newest_report_ns: dict[str, int] = {}
        self.metric_specs: dict[str, NodeMetricSpec] = {}
        self.node_slos: dict[str, dict[str, Any]] = {}
        self.topologies: dict[str, Topology] = {}
        self.devices: dict[str, dict[str, Any]] = {}
        self.reported_topologies: dict[str, NodeTopologyReported] = {}
        self.config_data: dict[str, str] | None = None
        self.config_uid = ""
        self.listed = False
        self.texts: dict[str, str] = {}
        self.config_digest = ""
        self.rejected_digest = ""
        self.decided: dict[str, NodeOvercommitted] = {}
        self.ignored: dict[str, NodeReportsIgnored] = {}
        self.frozen = False
        self.recommendations: dict[str, dict[str, Any]] = {}
        self.recommended: dict[str, RecommendationUpdated] = {}
        self.changed: dict[str, None] = {}
        self._usage_sums: dict[str, UsageSums] = {}
        self._node_resources: dict[str, NodeResources] = {}
        self._slim_nodes = SlimNodes()

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        if record.context == "cluster":
            self._apply_cluster(record)
        elif record.context == "slo":
            self._apply_own(record)
        else:
            self._apply_report(record.event)
        self.positions[record.context] = record.seq

    def _apply_cluster(self, record: RecordedEvent) -> None:
        if self.pods.gone:
            self.pods.forget_old(record.at_ns)
        match record.event:
            case PodObserved(pod_uid=uid, object=pod):
                self._invalidate_sums(self.pods.observe(record.at_ns, uid, pod))
            case PodDeleted(pod_uid=uid):
                self._invalidate_sums(self.pods.remove(record.at_ns, uid))
            case NodeMetricObserved(node=node, object=metric):
                self.metric_specs[node] = metric.spec
                self.node_metrics[node] = self.pods.with_shared_keys(
                    node, report_of_node_metric(metric.status, record.at_ns)
                )
                self._invalidate_sums(node)
            case NodeMetricDeleted(node=node):
                self.metric_specs.pop(node, None)
                self.node_metrics.pop(node, None)
                self._end_desired(object_key(NODE_METRICS, node), record.seq)
                self._invalidate_sums(node)
            case NodeObserved(node=name, object=node):
                self.nodes[name] = self._slim_nodes.slim(node)
                self._mark_changed(name)
            case NodeDeleted(node=name):
                self.nodes.pop(name, None)
                self._end_desired(object_key(NODES, name), record.seq)
                self._mark_changed(name)
            case ObjectObserved() as event:
                self._apply_object(event)
            case ObjectDeleted(resource=resource, name=name):
                self._apply_object_deleted(resource, name, record.seq)
            case InitialListCompleted():
                self.listed = True

    def _apply_report(self, event: Event) -> None:
        match event:
            case NodeReported(node=node, at_ns=at_ns):
                if at_ns >= self.newest_report_ns.get(node, 0):
                    self.reports[node] = self.pods.with_shared_keys(node, report_of_event(event))
                    self.newest_report_ns[node] = at_ns
                    self._invalidate_sums(node)
            case NodeReportsExpired(node=node, at_ns=at_ns):
                if node in self.reports and self.reports[node].at_ns <= at_ns:
                    del self.reports[node]
                    self._invalidate_sums(node)
            case NodeTopologyReported(node=node):
                self.reported_topologies[node] = event
                self._mark_changed(node)
            case NodeTopologyRemoved(node=node):
                self.reported_topologies.pop(node, None)
                self._mark_changed(node)

    def _apply_own(self, record: RecordedEvent) -> None:
        event = record.event
        self._fold_desired(event)
        match event:
            case ConfigApplied(text=text, digest=digest):
                self.texts, self.config_digest, self.rejected_digest = msgspec.json.decode(text), digest, ""
                self._mark_all_changed()
            case ConfigRejected(digest=digest):
                self.rejected_digest = digest
            case NodeOvercommitted(node=name, why=why):
                self.decided[name] = without_basis(event)
                if why == GONE:
                    del self.decided[name]
                    for resource in (NODES, NODE_METRICS, NODE_TOPOLOGIES):
                        self.desired_fields.pop(object_key(resource, name), None)
            case OvercommitmentFrozen() | OvercommitmentResumed():
                self.frozen = isinstance(event, OvercommitmentFrozen)
                self._mark_all_changed()
            case NodeReportsIgnored() | NodeReportsBelieved():
                self._apply_ignored(event)
            case RecommendationUpdated(name=name):
                self.recommended[name] = without_basis(event)
            case RecommendationEnded(name=name):
                self.recommended.pop(name, None)
                self.desired_fields.pop(object_key(RECOMMENDATIONS, name), None)

    def _apply_ignored(self, event: NodeReportsIgnored | NodeReportsBelieved) -> None:
        if isinstance(event, NodeReportsIgnored):
            self.ignored[event.node] = without_basis(event)
        else:
            self.ignored.pop(event.node, None)

    def usage_report(self, node: str) -> tuple[UsageReport, str]:
        """Returns the report in force of a node and its source: the newest by the instant that it is about.

        Host applications and the prediction come from the NodeMetric object where the newest report lacks them.
        """
        report, object_ = (
            self._believed(node, self.reports.get(node)),
            self._believed(node, self.node_metrics.get(node)),
        )
        if report is None:
            return (object_, "NodeMetric") if object_ is not None and object_.at_ns else (NO_REPORT, "")
        if object_ is None:
            return report, "metrics"
        if object_.at_ns > report.at_ns:
            return object_, "NodeMetric"
        if not report.has_applications:
            report = report._replace(applications=object_.applications)
        if not report.has_reclaimable:
            report = report._replace(reclaimable=object_.reclaimable)
        return report, "metrics"

    def _believed(self, node: str, report: UsageReport | None) -> UsageReport | None:
        """Returns a report; None where it is implausible, which counts as missing: nothing new is overcommitted."""
        return None if report is None or self._faults(node, report) else report

    def _faults(self, node: str, report: UsageReport) -> tuple[ReportFault, ...]:
        known = self.nodes.get(node)
        return report.faults(known.status.capacity if known else None)

    def report_faults(self, node: str) -> tuple[IgnoredReport, ...]:
        """Returns the reasons for which the newest reports about a node are ignored, by source."""
        sources = (("metrics", self.reports.get(node)), ("NodeMetric", self.node_metrics.get(node)))
        return tuple(
            IgnoredReport(source, *fault)
            for source, report in sources
            if report
            for fault in self._faults(node, report)
        )

    def zones(self, node: str) -> tuple[Zone, ...]:
        """Returns the NUMA zones that a node's topology lists with cpu or memory."""
        topology = self.topologies.get(node)
        return read_object(topology.zones, tuple[Zone, ...]) if topology and has_zones(topology.zones) else ()

    def usage_sums(self, node: str) -> UsageSums:
        """Returns a node's sums over the pods that were on it at the instant of its report, and the requests since."""
        usage_sums = self._usage_sums.get(node)
        if usage_sums is None:
            report, _ = self.usage_report(node)
            pods = self.pods.as_of(node, report.at_ns)
            usage_sums = sum_usage(pods, report, len(self.zones(node)))
            if newer := self.pods.newer_than(node, report.at_ns):
                ended = [pod for pod in pods if pod.gone_ns]
                usage_sums = usage_sums._replace(unreported=unreported_requests(newer, ended, report))
            self._usage_sums[node] = usage_sums
        return usage_sums

    def node_resources(self, name: str) -> NodeResources:
        """Returns a node's capacity and the part that is reserved for the system."""
        node_resources = self._node_resources.get(name)
        if node_resources is None:
            node = self.nodes[name]
            is_reported = node.status.capacity is not None and node.status.allocatable is not None
            node_resources = NodeResources(node.metadata, is_reported, capacity_of(node), reserved_of(node))
            self._node_resources[name] = node_resources
        return node_resources

    def _apply_object(self, event: ObjectObserved) -> None:
        resource, name, body = event.resource, event.name, event.object
        if resource == "configmaps":
            if name == CONFIG_MAP:
                self.config_uid = event.uid
                self.config_data = {key: str(text) for key, text in (body.get("data") or {}).items()}
        elif resource == NODE_SLOS:
            self.node_slos[name] = body.get("spec") or {}
            self._mark_changed(name)
        elif resource == NODE_TOPOLOGIES:
            meta = body.get("metadata") or {}
            self.topologies[name] = Topology(
                meta.get("annotations") or {},
                body.get("zones") or [],
                meta.get("labels") or {},
                tuple(body.get("topologyPolicies") or ()),
            )
            self._invalidate_sums(name)
        elif resource == RECOMMENDATIONS:
            self.recommendations[name] = (body.get("spec") or {}).get("target") or {}
        elif resource == DEVICES:
            self.devices[name] = {
                "metadata": {"labels": (body.get("metadata") or {}).get("labels") or {}},
                "spec": body.get("spec") or {},
            }
            self._mark_changed(name)

    def _apply_object_deleted(self, resource: str, name: str, seq: int) -> None:
        if resource == RECOMMENDATIONS:
            self.recommendations.pop(name, None)
            self._end_desired(object_key(resource, name), seq)
            return
        if resource == NODE_SLOS:
            self.node_slos.pop(name, None)
        elif resource == NODE_TOPOLOGIES:
            self.topologies.pop(name, None)
            self._usage_sums.pop(name, None)
        elif resource == DEVICES:
            self.devices.pop(name, None)
        else:
            return
        self._end_desired(object_key(resource, name), seq)
        self._mark_changed(name)

    def _invalidate_sums(self, node: str) -> None:
        """Drops a node's cached sums: a pod came or went, or there is a newer report. Does nothing without a node."""
        if not node:
            return
        self._usage_sums.pop(node, None)
        self._mark_changed(node)

    def _mark_changed(self, node: str) -> None:
        self._node_resources.pop(node, None)
        self.changed[node] = None

    def _mark_all_changed(self) -> None:
        for node in (*self.nodes, *self.node_slos):
            self.changed[node] = None

    def encode(self) -> bytes:
        """Canonical: see `shared.fold.State`."""
        return ENCODER.encode({name: getattr(self, name) for name in FIELDS} | {"pods": self.pods.stored()})

    def restore(self, data: bytes) -> None:
        """Takes over a stored State."""
        stored = DECODER.decode(data)
        for name in FIELDS:
            setattr(self, name, getattr(stored, name))
        self.nodes = {name: self._slim_nodes.slim(node) for name, node in self.nodes.items()}
        self._restore_deletions()
        self.pods.restore(stored.pods)
        for reports in (self.node_metrics, self.reports):
            for node, report in reports.items():
                reports[node] = self.pods.with_shared_keys(node, report)
        self._mark_all_changed()
