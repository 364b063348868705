"""The nodes, the pods on them, and their measured usage, as `cluster` and `metrics-*` have them.

Each context writes fields of its own; the report in force is computed from both on demand.
"""

import msgspec
from msgspec.structs import replace

from services.descheduler.state.load_report import LoadReport, report_of_event, report_of_node_metric
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.metrics import NodeReported, NodeReportsExpired
from shared.kube.node import Node
from shared.kube.pod import ENDED_PHASES, Pod, PodSpec

SPARE_SPECS = 1000
"""Specs without pods are dropped when there are more of them than pods plus this."""


class ObservedCluster:
    """Nodes, pods and reports.

    Attributes:
        nodes: name -> the node, without images.
        pods: uid -> the pod; those on no node as well.
        node_metrics: node -> the report in its NodeMetric object.
        reports: node -> its newest report of `metrics-*`.
        newest_report_ns: node -> the newest instant it ever reported; also after its reports have expired.
        versions: node -> number of changes of the node, its pods or its reports; pod_versions: of its pods alone. They
            tell caches what has changed, and are not stored.
    """

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.pod_versions: dict[str, int] = {}
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.node_metrics: dict[str, LoadReport] = {}
        self.reports: dict[str, LoadReport] = {}
        self.newest_report_ns: dict[str, int] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self._specs: dict[bytes, PodSpec] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event of `cluster`."""
        match record.event:
            case PodObserved(pod_uid=uid, object=pod):
                self._set_pod(uid, pod)
            case PodDeleted(pod_uid=uid):
                self._remove_pod(uid)
            case NodeObserved(node=name, object=node):
                self.nodes[name] = replace(node, status=replace(node.status, images=()))
                self._mark(name)
            case NodeDeleted(node=name):
                self.nodes.pop(name, None)
                self._mark(name)
            case NodeMetricObserved(node=name, object=metric):
                self.node_metrics[name] = report_of_node_metric(metric.status, record.at_ns)
                self._mark(name)
            case NodeMetricDeleted(node=name):
                self.node_metrics.pop(name, None)
                self._mark(name)

    def apply_report(self, event: Event) -> None:
        """Folds one event of `metrics-*`."""
        match event:
            case NodeReported(node=node, at_ns=at_ns):
                if at_ns >= self.newest_report_ns.get(node, 0):
                    self.reports[node] = report_of_event(event)
                    self.newest_report_ns[node] = at_ns
                    self._mark(node)
            case NodeReportsExpired(node=node, at_ns=at_ns):
                if node in self.reports and self.reports[node].at_ns <= at_ns:
                    del self.reports[node]
                    self._mark(node)

    def report(self, node: str) -> LoadReport | None:
        """Returns the report in force of a node: the newest believable one by the instant that it is about, or None."""
        known = self.nodes.get(node)
        found = [
            report
            for report in (self.reports.get(node), self.node_metrics.get(node))
            if report is not None and report.is_believable(known)
        ]
        return max(found, key=lambda report: report.at_ns, default=None)

    def pods_on(self, node: str) -> list[Pod]:
        """Returns the pods on a node that have not ended, by namespace and name."""
        pods = [self.pods[uid] for uid in self._by_node.get(node, ())]
        live = [pod for pod in pods if pod.status.phase not in ENDED_PHASES]
        live.sort(key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
        return live

    def stored(self) -> "StoredCluster":
        """Returns the stored form."""
        specs: dict[bytes, int] = {}
        pods = {}
        for uid in sorted(self.pods):
            pod = self.pods[uid]
            number = specs.setdefault(_ENCODER.encode(pod.spec), len(specs))
            pods[uid] = (number, replace(pod, spec=PodSpec()))
        return StoredCluster(
            nodes=self.nodes,
            specs=[msgspec.Raw(each) for each in specs],
            pods=pods,
            node_metrics=self.node_metrics,
            reports=self.reports,
            newest_report_ns=self.newest_report_ns,
        )

    def restore(self, stored: "StoredCluster") -> None:
        """Takes over a stored cluster."""
        specs = [msgspec.json.decode(each, type=PodSpec) for each in stored.specs]
        for uid, (number, pod) in stored.pods.items():
            self._set_pod(uid, replace(pod, spec=specs[number]))
        self.nodes, self.node_metrics = stored.nodes, stored.node_metrics
        self.reports, self.newest_report_ns = stored.reports, stored.newest_report_ns

    def _set_pod(self, uid: str, pod: Pod) -> None:
        self._remove_pod(uid)
        # Pods of one workload have equal specs, which are most of a pod: each is stored once.
        spec = self._specs.setdefault(_ENCODER.encode(pod.spec), pod.spec)
        self.pods[uid] = replace(pod, spec=spec)
        if node := spec.node_name:
            self._by_node.setdefault(node, {})[uid] = None
            self._mark_pods(node)
        if len(self._specs) > 2 * len(self.pods) + SPARE_SPECS:
            self._specs = {_ENCODER.encode(each.spec): each.spec for each in self.pods.values()}

    def _remove_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None and (node := pod.spec.node_name):
            del self._by_node[node][uid]
            if not self._by_node[node]:
                del self._by_node[node]
            self._mark_pods(node)

    def _mark(self, node: str) -> None:
        self.versions[node] = self.versions.get(node, 0) + 1

    def _mark_pods(self, node: str) -> None:
        self.pod_versions[node] = self.pod_versions.get(node, 0) + 1
        self._mark(node)


class StoredCluster(msgspec.Struct):
    """The stored form: each pod spec once.

    Attributes:
        pods: uid -> number of its spec, and the pod without it.
    """

    nodes: dict[str, Node]
    specs: list[msgspec.Raw]
    pods: dict[str, tuple[int, Pod]]
    node_metrics: dict[str, LoadReport]
    reports: dict[str, LoadReport]
    newest_report_ns: dict[str, int]


_ENCODER = msgspec.json.Encoder(order="sorted")
