"""The half of the fold that is of what was seen: `cluster`, and the reports of `metrics-*`."""

from collections.abc import Callable
from typing import Any, ClassVar

from services.scheduler.cache.cluster_objects import FOLLOWED, NODE_TOPOLOGIES
from services.scheduler.state.cluster_event import Change
from services.scheduler.state.explanation_requests import QUESTIONS
from services.scheduler.state.pod_changes import (
    asks_less,
    asks_otherwise,
    has_other_spec_or_conditions,
    is_other,
    last_seen,
)
from services.scheduler.state.pod_class import has_same_marks
from services.scheduler.state.pod_record import PodFacts
from services.scheduler.state.records import MetricFacts, NodeFacts
from services.scheduler.state.state_fields import KnownFacts
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    BindSuppressed,
    InitialListCompleted,
    MissingPermission,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.log import WriterStarted
from shared.events.metrics import NodeReported, NodeReportsExpired
from shared.kube.elastic_quota import RESOURCES as QUOTAS
from shared.kube.pod import Pod

CONFIG_MAP = "koordinator-system/koord-scheduler-config"
"""The ConfigMap that configures the scheduler when no file does."""

CONFIG_KEY = "koord-scheduler-config"
"""Its data key; a ConfigMap with one key only may call it as it likes."""

_ENDED = frozenset(("Succeeded", "Failed"))
_MAX_UNREAD = 4096


class ObservedFacts(KnownFacts):
    """Folds observations, and the outcomes of what we decided."""

    def _node_observed(self, record: RecordedEvent, event: NodeObserved) -> None:
        seq, node, facts = record.seq, event.object, self.nodes.get(event.node)
        if facts is None:
            changed = [0] * len(Change)
            changed[Change.NODE_ADDED] = seq
            self.nodes[event.node] = NodeFacts(node, changed)
        else:
            before, changed = facts.node, facts.changed
            if before.status.allocatable != node.status.allocatable:
                changed[Change.ALLOCATABLE] = seq
            if before.spec != node.spec:
                changed[Change.TAINTS] = seq
            if before.metadata.labels != node.metadata.labels:
                changed[Change.LABELS] = seq
            if before.metadata.annotations != node.metadata.annotations:
                changed[Change.ANNOTATIONS] = seq
            facts.node = node
        if self.touched is not None:
            self.touched.nodes[event.node] = None

    def _node_deleted(self, _: RecordedEvent, event: NodeDeleted) -> None:
        self.nodes.pop(event.node, None)
        if self.touched is not None:
            self.touched.nodes[event.node] = None

    def _pod_observed(self, record: RecordedEvent, event: PodObserved) -> None:
        uid, pod = event.pod_uid, event.object
        facts = self.pods.get(uid)
        if facts is None:
            facts = self.pods[uid] = PodFacts(uid)
        spec = pod.spec
        node = spec.node_name
        ended = pod.status.phase in _ENDED
        if facts.since == 0:
            facts.since = record.seq
            facts.name = event.pod
        elif node and facts.node == node:
            if (ended and not facts.ended) or asks_less(facts, pod):
                self._changed(node, Change.POD_RELEASED, record.seq)
            if is_other(facts, pod):
                self._changed(node, Change.POD_CHANGED, record.seq)
            if facts.load_ask is not None or not has_same_marks(last_seen(facts), pod):
                self._settle_load_ask(facts, pod)
        elif ended:
            self.released_seq = record.seq
        elif not node and asks_otherwise(facts, pod):
            facts.changed_seq = record.seq
        if facts.node != node:
            if node:
                self._changed(node, Change.POD_ADDED, record.seq)
            facts.node = node
            facts.node_since_ns = record.at_ns
            self._drop_load_ask(facts)
        facts.ended = ended
        facts.deleting = pod.metadata.deletion_timestamp is not None
        if facts.observed is None:
            self._unread.append(facts)
            if len(self._unread) >= _MAX_UNREAD:
                facts.observed = pod
                self.read()
        facts.observed = pod
        if self.touched is not None:
            self.touched.pods[uid] = None

    def _pod_deleted(self, record: RecordedEvent, event: PodDeleted) -> None:
        facts = self.pods.pop(event.pod_uid, None)
        if facts is None:
            return
        if not facts.node:
            self.released_seq = record.seq
        elif not facts.ended:
            self._changed(facts.node, Change.POD_RELEASED, record.seq)
        facts.observed = None
        self._drop_load_ask(facts)
        if facts.ask is not None:
            self._forget(facts.ask)
        if self.touched is not None:
            self.touched.pods[event.pod_uid] = None

    def _metric_observed(self, record: RecordedEvent, event: NodeMetricObserved) -> None:
        before, updated = self.metrics.get(event.node), event.object.status.update_time
        self.metrics[event.node] = MetricFacts(event.object, updated or (before.updated if before else ""))
        self._changed(event.node, Change.METRIC, record.seq)
        if self.touched is not None:
            self.touched.metrics[event.node] = None

    def _metric_deleted(self, record: RecordedEvent, event: NodeMetricDeleted) -> None:
        self.metrics.pop(event.node, None)
        self._changed(event.node, Change.METRIC, record.seq)
        if self.touched is not None:
            self.touched.metrics[event.node] = None

    def _placement_refused(self, record: RecordedEvent, event: BindRejected | BindFailed | BindSuppressed) -> None:
        self._refused(record, event.pod_uid, withheld=isinstance(event, BindSuppressed))

    def _permission_missing(self, record: RecordedEvent, event: MissingPermission) -> None:
        if event.pod_uid:
            self._refused(record, event.pod_uid, withheld=False)

    def _refused(self, record: RecordedEvent, uid: str, *, withheld: bool) -> None:
        self.released_seq = record.seq
        facts = self.pods.get(uid)
        if facts is None or record.cause is None or record.cause.context != "scheduling":
            return
        facts.refused_seq = max(facts.refused_seq, record.cause.seq)
        facts.refusals += 1
        if withheld:
            facts.withheld_seq = record.seq
        if self.touched is not None:
            self.touched.pods[uid] = None

    def _object_observed(self, record: RecordedEvent, event: ObjectObserved) -> None:
        if event.resource in FOLLOWED:
            self.objects.setdefault(event.resource, {})[event.name] = event.object
            self._changed_around(record, event)
        elif event.resource in QUOTAS:
            self.quota.observe(f"{event.resource}/{event.name}", event.object)
        elif event.resource == QUESTIONS:
            self.questions[event.name] = {**event.object, "status": None}  # the answer is ours, and known
        elif event.resource == "configmaps" and event.name == CONFIG_MAP:
            data = event.object.get("data") or {}
            self.config_map = (
                data.get(CONFIG_KEY) if CONFIG_KEY in data or len(data) != 1 else next(iter(data.values()))
            )

    def _object_deleted(self, record: RecordedEvent, event: ObjectDeleted) -> None:
        if event.resource in FOLLOWED:
            self.objects.get(event.resource, {}).pop(event.name, None)
            self._changed_around(record, event)
        elif event.resource in QUOTAS:
            self.quota.lose(f"{event.resource}/{event.name}")
        elif event.resource == QUESTIONS:
            self.questions.pop(event.name, None)
        elif event.resource == "configmaps" and event.name == CONFIG_MAP:
            self.config_map = None

    def _writer_started(self, record: RecordedEvent, _: WriterStarted) -> None:
        if record.context != "cluster":
            self._hear_clock(record.at_ns)
            return
        self.gateway_since = record.seq
        if self.touched is not None:
            self.touched.pods.update((uid, None) for uid, facts in self.pods.items() if facts.withheld_seq)

    def _listed(self, record: RecordedEvent, _: InitialListCompleted) -> None:
        self.listed_seq = record.seq

    # metrics-*

    def _node_reported(self, record: RecordedEvent, event: NodeReported) -> None:
        reports = self.reports.setdefault(event.node, {})
        before = reports.get(record.context)
        if before is None or before.at_ns <= event.at_ns:
            reports[record.context] = event
            self.reported.setdefault(event.node, {})[record.context] = record.seq
            if self.touched is not None:
                self.touched.metrics[event.node] = None

    def _node_forgotten(self, record: RecordedEvent, event: NodeReportsExpired) -> None:
        reports = self.reports.get(event.node, {})
        before = reports.get(record.context)
        if before is None or before.at_ns > event.at_ns:
            return
        del reports[record.context], self.reported[event.node][record.context]
        if not reports:
            del self.reports[event.node], self.reported[event.node]
        if self.touched is not None:
            self.touched.metrics[event.node] = None

    def _settle_load_ask(self, facts: PodFacts, pod: Pod) -> None:
        """Keeps the class that the pod's load is estimated by, as upstream's cache does: a change of spec or conditions replaces it, one of
        labels or annotations alone does not. Source: spec/scheduler-core.md 3.3.
        """
        if has_other_spec_or_conditions(facts, pod):
            self._drop_load_ask(facts)
        elif facts.load_ask is None:
            self._keep_load_ask(facts)

    def _changed_around(self, record: RecordedEvent, event: ObjectObserved | ObjectDeleted) -> None:
        if event.resource == NODE_TOPOLOGIES:
            self._changed(event.name, Change.TOPOLOGY, record.seq)
        else:
            self.changed[FOLLOWED[event.resource]] = record.seq
        if self.touched is not None:
            self.touched.objects[event.resource, event.name] = None

    folds: ClassVar[dict[type[Event], Callable[[Any, RecordedEvent, Any], None]]] = {
        NodeObserved: _node_observed,
        NodeDeleted: _node_deleted,
        PodObserved: _pod_observed,
        PodDeleted: _pod_deleted,
        NodeMetricObserved: _metric_observed,
        NodeMetricDeleted: _metric_deleted,
        ObjectObserved: _object_observed,
        ObjectDeleted: _object_deleted,
        BindRejected: _placement_refused,
        BindFailed: _placement_refused,
        BindSuppressed: _placement_refused,
        MissingPermission: _permission_missing,
        WriterStarted: _writer_started,
        InitialListCompleted: _listed,
        NodeReported: _node_reported,
        NodeReportsExpired: _node_forgotten,
    }
