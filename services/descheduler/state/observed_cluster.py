"""The nodes, the pods on them, and their measured usage, as `cluster` and `metrics-*` have them.

Each context writes fields of its own; the report in force is computed from both on demand.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from services.descheduler.state.load_report import LoadReport, report_of_event, report_of_node_metric
from services.descheduler.state.observed_pods import ENCODER, ObservedPods
from shared.domain.label_selectors import Selector, selects
from shared.domain.node_selection import meets, problem_of
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.metrics import NodeReported, NodeReportsExpired
from shared.kube.node import Node
from shared.kube.pod import Pod, PodSpec
from shared.kube.resource_names import BUDGETS
from shared.kube.selectors import LabelSelector


class ObservedCluster:
    """Nodes, pods and reports.

    Attributes:
        nodes: name -> the node, without images.
        pods: see `ObservedPods`.
        node_metrics: node -> the report in its NodeMetric object.
        reports: node -> its newest report of `metrics-*`.
        newest_report_ns: node -> the newest instant it ever reported; also after its reports have expired.
        namespaces: name -> labels.
        budgets: `namespace/name` of a disruption budget -> the selector of its pods; those that can be read.
        versions: node -> number of changes of the node or its reports; `pods.versions` has those of its pods. They tell
            caches what has changed, and are not stored.
    """

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.nodes: dict[str, Node] = {}
        self.pods = ObservedPods()
        self.node_metrics: dict[str, LoadReport] = {}
        self.reports: dict[str, LoadReport] = {}
        self.newest_report_ns: dict[str, int] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.budgets: dict[str, LabelSelector] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event of `cluster`."""
        match record.event:
            case PodObserved(object=pod):
                self.pods.put(pod)
            case PodDeleted(pod_uid=uid):
                self.pods.remove(uid)
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
            case ObjectObserved(resource="namespaces", name=name, object=body):
                self.namespaces[name] = _labels(body)
            case ObjectDeleted(resource="namespaces", name=name):
                self.namespaces.pop(name, None)
            case ObjectObserved(resource=resource, name=name, object=body) if resource == BUDGETS:
                self._set_budget(name, body)
            case ObjectDeleted(resource=resource, name=name) if resource == BUDGETS:
                self.budgets.pop(name, None)

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

    def namespaces_selected(self, selector: Selector) -> frozenset[str]:
        """Returns the namespaces whose labels match a selector."""
        return frozenset(name for name, labels in self.namespaces.items() if selects(selector, labels))

    def has_budget(self, pod: Pod) -> bool:
        """Reports whether a disruption budget selects a pod."""
        labels = pod.metadata.labels or {}
        return any(
            key.partition("/")[0] == pod.metadata.namespace and meets(selector, labels)
            for key, selector in self.budgets.items()
        )

    def stored(self) -> "StoredCluster":
        """Returns the stored form."""
        specs: dict[bytes, int] = {}
        pods = {}
        for uid, pod in sorted(self.pods.by_uid.items()):
            number = specs.setdefault(ENCODER.encode(pod.spec), len(specs))
            pods[uid] = (number, replace(pod, spec=PodSpec()))
        return StoredCluster(
            nodes=self.nodes,
            specs=[msgspec.Raw(each) for each in specs],
            pods=pods,
            node_metrics=self.node_metrics,
            reports=self.reports,
            newest_report_ns=self.newest_report_ns,
            namespaces=self.namespaces,
            budgets=self.budgets,
        )

    def restore(self, stored: "StoredCluster") -> None:
        """Takes over a stored cluster."""
        specs = [msgspec.json.decode(each, type=PodSpec) for each in stored.specs]
        for number, pod in stored.pods.values():
            self.pods.put(replace(pod, spec=specs[number]))
        self.nodes, self.node_metrics = stored.nodes, stored.node_metrics
        self.reports, self.newest_report_ns = stored.reports, stored.newest_report_ns
        self.namespaces, self.budgets = stored.namespaces, stored.budgets

    def _set_budget(self, name: str, body: dict[str, Any]) -> None:
        self.budgets.pop(name, None)
        spec = body.get("spec")
        try:
            selector = msgspec.convert(spec.get("selector") if isinstance(spec, dict) else None, LabelSelector)
        except msgspec.ValidationError:
            return
        if not problem_of(selector):
            self.budgets[name] = selector

    def _mark(self, node: str) -> None:
        self.versions[node] = self.versions.get(node, 0) + 1


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
    namespaces: dict[str, dict[str, str]]
    budgets: dict[str, LabelSelector]


def _labels(body: dict[str, Any]) -> dict[str, str]:
    """Returns the labels of an object; none where they cannot be read."""
    metadata = body.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}
