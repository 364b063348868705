"""The fold of observations: `cluster`, and the reports of `metrics-*`."""

from collections.abc import Callable, Mapping
from sys import intern
from typing import Any, ClassVar

from msgspec.structs import replace

from services.scheduler.service_manifest import CONFIG_MAP
from services.scheduler.state.answered_schedule_explanations import EXPLANATIONS
from services.scheduler.state.choose_newest_measurement import update_time_ns
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.node_record import NodeRecord
from services.scheduler.state.packed_pod_observation import first_observation, observed_on_node
from services.scheduler.state.packed_reported_pods import encoded_classes
from services.scheduler.state.pod_equivalence_class import has_same_marks
from services.scheduler.state.pod_observation_diff import (
    changes_labels,
    has_other_spec_or_conditions,
    last_seen,
    requests_changed,
    requests_less,
)
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.reserve_pods import identity_owners_of, may_help, reserve_pod_of, without_marker
from services.scheduler.state.scheduler_state_fields import SchedulerStateFields
from services.scheduler.state.usage_records import MetricRecord, ReportRecord
from services.scheduler.state.watched_api_resources import (
    CLAIMS,
    CONFIG_MAPS,
    OF_NODES,
    OPERATING_PODS,
    POD_GROUPS,
    RESERVATIONS,
    VOLUMES,
    WATCHED,
    is_unselected,
)
from shared.domain import gang
from shared.domain.config_map_text import config_map_text
from shared.domain.operating_mode_pod import OPERATING_MODE, is_operating, reservation_of
from shared.domain.usage_plausibility import is_ahead, ranges_of_report
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    BindSuppressed,
    DesiredStateRejected,
    InitialListCompleted,
    MissingPermission,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.log import WriterStarted
from shared.events.metrics import NodeReported, NodeReportsExpired
from shared.kube.elastic_quota import RESOURCES as QUOTAS
from shared.kube.gpu_templates import CONFIG_MAP as GPU_TEMPLATES
from shared.kube.pod import ENDED_PHASES, Pod

CONFIG_KEY = "koord-scheduler-config"
"""Data key of CONFIG_MAP."""

_SPECIAL = frozenset((*gang.LABELS, OPERATING_MODE))
"""Labels of pods that are in a gang or stand for a Reservation; annotations put pods into gangs as well."""
_MAX_UNREAD_PODS = 16_384
"""Observations that wait to be read, 2 KB each: most of a long history are of pods that have gone since."""
_MAX_UNREAD_METRICS = 1024


class ClusterFold(SchedulerStateFields):
    """Folds observations, and the outcomes of the scheduler's decisions."""

    def _node_observed(self, record: RecordedEvent, event: NodeObserved) -> None:
        seq, node, node_record = record.seq, event.object, self.nodes.get(event.node)
        if node_record is None:
            changed = [0] * len(ClusterEvent)
            changed[ClusterEvent.NODE_ADDED] = seq
            self.nodes[event.node] = NodeRecord(node, changed)
        else:
            before, changed = node_record.node, node_record.changed
            if before.status.allocatable != node.status.allocatable:
                changed[ClusterEvent.ALLOCATABLE] = seq
            if before.spec != node.spec:
                changed[ClusterEvent.TAINTS] = seq
            if before.metadata.labels != node.metadata.labels:
                changed[ClusterEvent.LABELS] = seq
            if before.metadata.annotations != node.metadata.annotations:
                changed[ClusterEvent.ANNOTATIONS] = seq
            node_record.node = node
        if self.dirty is not None:
            self.dirty.nodes[event.node] = None

    def _node_deleted(self, _: RecordedEvent, event: NodeDeleted) -> None:
        self.nodes.pop(event.node, None)
        if self.dirty is not None:
            self.dirty.nodes[event.node] = None

    def _pod_observed(self, record: RecordedEvent, event: PodObserved, reserve_pod: Pod | None = None) -> None:
        """Folds a pod; `reserve_pod` stands for a Reservation, and an observed pod cannot claim to."""
        pod, uid = reserve_pod or event.object, event.pod_uid
        metadata = pod.metadata
        if metadata.annotations and reserve_pod is None:
            pod = without_marker(pod)
        pod_record = self.pods.get(uid)
        if pod_record is None:
            pod_record = self.pods[uid] = PodRecord(uid)
        spec = pod.spec
        node = spec.node_name
        ended = pod.status.phase in ENDED_PHASES
        if not pod_record.observation:
            pod_record.observation = first_observation(record.seq)
            self.awaited.pop(uid, None)
            pod_record.name = event.pod
        elif node and pod_record.node == node:
            self._observe_again(pod_record, pod, record.seq, ends=ended and not pod_record.ended)
        elif ended:
            self.released_seq = record.seq
        elif not node and requests_changed(last_seen(pod_record), pod):
            pod_record.note_outcome(changed_seq=record.seq)
        if pod_record.node != node:
            if node:
                self._changed(node, ClusterEvent.POD_ADDED, record.seq)
            pod_record.node = intern(node)
            pod_record.observation = observed_on_node(pod_record.observation, record.at_ns)
            if pod_record.load_class is not None:
                self._drop_load_class(pod_record)
        pod_record.ended = ended
        pod_record.deleting = metadata.deletion_timestamp is not None
        if metadata.annotations or uid in self.gangs.gang_of or self._may_be_special(uid, metadata.labels):
            self.gangs.observe_pod(uid, pod, record.seq, record.at_ns)
            self._set_operating(uid, pod, record.seq)
        if pod_record.observed is None:
            if len(self._unread) >= _MAX_UNREAD_PODS:
                self.read_pods()
            self._unread.append(pod_record)
        pod_record.observed = pod
        if self.dirty is not None:
            self.dirty.pods[uid] = None

    def _pod_deleted(self, record: RecordedEvent, event: PodDeleted) -> None:
        self._delete_pod(record, event.pod_uid)

    def _delete_pod(self, record: RecordedEvent, uid: str) -> None:
        self.gangs.lose_pod(uid, record.seq, record.at_ns)
        pod_record = self.pods.pop(uid, None)
        if pod_record is None:
            return
        self._set_operating(uid, None, record.seq)
        self.identities.pop(uid, None)
        if not pod_record.node:
            self.released_seq = record.seq
        elif not pod_record.ended:
            self._changed(pod_record.node, ClusterEvent.POD_RELEASED, record.seq)
        pod_record.observed = None
        self._drop_load_class(pod_record)
        if pod_record.pod_class is not None:
            self._forget(pod_record.pod_class)
        if self.dirty is not None:
            self.dirty.pods[uid] = None

    def _observe_again(self, pod_record: PodRecord, pod: Pod, seq: int, *, ends: bool) -> None:
        """Notes what the next observation of a pod on one node changes there."""
        seen = last_seen(pod_record)
        if ends or requests_less(seen, pod):
            self._changed(pod_record.node, ClusterEvent.POD_RELEASED, seq)
        if changes_labels(pod_record, seen, pod):
            self._changed(pod_record.node, ClusterEvent.POD_CHANGED, seq)
        if pod_record.load_class is not None or not has_same_marks(seen, pod):
            self._settle_load_class(pod_record, pod)

    def _may_be_special(self, uid: str, labels: Mapping[str, str] | None) -> bool:
        """Returns False for most pods, at once: their labels put them into no gang, and they stand for no Reservation."""
        return bool(labels and not _SPECIAL.isdisjoint(labels)) or uid in self.objects.get(OPERATING_PODS, ())

    def _set_operating(self, uid: str, pod: Pod | None, seq: int) -> None:
        """Sets the Reservation that a pod in operating mode stands for, if it stands for one; None: it is deleted."""
        there = self.objects.get(OPERATING_PODS, {})
        if uid not in there and (pod is None or not is_operating(pod.metadata.labels)):
            return
        body = None if pod is None else reservation_of(pod)
        if there.get(uid) == body:
            return
        if body is None:
            del there[uid]
        else:
            self.objects.setdefault(OPERATING_PODS, {})[uid] = body
            self.changed[ClusterEvent.RESERVATION] = seq
        self._set_identity_owners(f"pod/{uid}", () if body is None else identity_owners_of(body))
        if self.dirty is not None:
            self.dirty.objects[OPERATING_PODS, uid] = None
            self.dirty.pods[uid] = None

    def _reservation_observed(self, record: RecordedEvent, event: ObjectObserved) -> None:
        there = self.objects.setdefault(RESERVATIONS, {})
        before = there.get(event.name)
        if before is not None and before["metadata"].get("uid", "") != event.uid:
            self._delete_pod(record, before["metadata"].get("uid", ""))
            before = None
        there[event.name] = event.object
        self._set_identity_owners(event.name, identity_owners_of(event.object))
        stands_for = reserve_pod_of(event)
        if stands_for is None:
            self._delete_pod(record, event.uid)
        else:
            self._pod_observed(record, stands_for, stands_for.object)
            if may_help(before, event.object):
                self.changed[ClusterEvent.RESERVATION] = record.seq
        if self.dirty is not None:
            self.dirty.objects[RESERVATIONS, event.name] = None

    def _reservation_deleted(self, record: RecordedEvent, event: ObjectDeleted) -> None:
        there = self.objects.get(RESERVATIONS, {}).pop(event.name, None)
        self._delete_pod(record, event.uid if there is None else there["metadata"].get("uid", ""))
        self._set_identity_owners(event.name, ())
        self._forget_status(self.reservation_statuses, event)
        if self.dirty is not None:
            self.dirty.objects[RESERVATIONS, event.name] = None

    def _status_rejected(self, record: RecordedEvent, event: DesiredStateRejected) -> None:
        """Places a Reservation anew whose status the API server rejects for good."""
        there = self.objects.get(RESERVATIONS, {}).get(event.name)
        if event.resource == RESERVATIONS and there is not None:
            self._refused(record, there["metadata"].get("uid", ""), suppressed=False)

    def _metric_observed(self, record: RecordedEvent, event: NodeMetricObserved) -> None:
        before, metric = self.metrics.get(event.node), event.object
        status = metric.status
        ahead = is_ahead(update_time_ns(status.update_time), record.at_ns)
        updated = status.update_time or (before.updated if before else "")
        self.metrics[event.node] = MetricRecord(metric, updated, is_ahead=ahead)
        self._unread_metrics[event.node] = None
        if status.pods_metric or len(self._unread_metrics) >= _MAX_UNREAD_METRICS:  # unread, each takes some 2 KB
            self.read_metrics()
        self._changed(event.node, ClusterEvent.METRIC, record.seq)
        if self.dirty is not None:
            self.dirty.metrics[event.node] = None

    def _metric_deleted(self, record: RecordedEvent, event: NodeMetricDeleted) -> None:
        self.metrics.pop(event.node, None)
        self._unread_metrics.pop(event.node, None)
        self._changed(event.node, ClusterEvent.METRIC, record.seq)
        if self.dirty is not None:
            self.dirty.metrics[event.node] = None

    def _placement_not_bound(self, record: RecordedEvent, event: BindRejected | BindFailed | BindSuppressed) -> None:
        self._refused(record, event.pod_uid, suppressed=isinstance(event, BindSuppressed))

    def _permission_missing(self, record: RecordedEvent, event: MissingPermission) -> None:
        if event.pod_uid:
            self._refused(record, event.pod_uid, suppressed=False)

    def _refused(self, record: RecordedEvent, uid: str, *, suppressed: bool) -> None:
        self.released_seq = record.seq
        pod_record = self.pods.get(uid)
        if pod_record is None or record.cause is None or record.cause.context != "scheduling":
            return
        pod_record.note_outcome(
            refused_seq=max(pod_record.refused_seq, record.cause.seq),
            refusals=pod_record.refusals + 1,
            suppressed_seq=record.seq if suppressed else pod_record.suppressed_seq,
        )
        if self.dirty is not None:
            self.dirty.pods[uid] = None

    def _pod_evicted(self, record: RecordedEvent, event: PodEvicted) -> None:
        # Our own evictions take gangs as a whole already.
        if record.cause is not None and record.cause.context != "scheduling":
            self.gangs.observe_eviction(event.pod_uid, record.seq, record.at_ns)

    def _object_observed(self, record: RecordedEvent, event: ObjectObserved) -> None:
        if event.resource == RESERVATIONS:
            self._reservation_observed(record, event)
        elif event.resource in WATCHED:
            there = self.objects.setdefault(event.resource, {})
            if event.resource == CLAIMS and is_unselected(there.get(event.name), event.object):
                self.unselected[event.name] = record.seq
            there[event.name] = event.object
            if event.resource == POD_GROUPS:
                self.gangs.observe_pod_group(event.name, event.object, record.seq, record.at_ns)
            self._object_changed(record, event)
        elif event.resource in QUOTAS:
            self.quota.observe(f"{event.resource}/{event.name}", event.object)
        elif event.resource == EXPLANATIONS:
            self.explanations[event.name] = {**event.object, "status": None}  # the status is our own answer
        elif event.resource == CONFIG_MAPS and event.name == GPU_TEMPLATES:
            self.objects.setdefault(CONFIG_MAPS, {})[event.name] = event.object
            self._object_changed(record, event)
        elif event.resource == CONFIG_MAPS and event.name == CONFIG_MAP:
            self.config_map_uid = event.uid
            self.config_map, self.config_map_fault = config_map_text(CONFIG_KEY, event.object.get("data") or {})

    def _object_deleted(self, record: RecordedEvent, event: ObjectDeleted) -> None:
        self.writes.forget(event.resource, event.name, event.uid)
        if event.resource == RESERVATIONS:
            self._reservation_deleted(record, event)
        elif event.resource in WATCHED:
            self.objects.get(event.resource, {}).pop(event.name, None)
            if event.resource == CLAIMS:
                self.unselected.pop(event.name, None)
            if event.resource == VOLUMES:
                self.chosen.pop(event.uid, None)
            if event.resource == POD_GROUPS:
                self.gangs.lose_pod_group(event.name, record.seq, record.at_ns)
                self._forget_status(self.pod_group_statuses, event)
            self._object_changed(record, event)
        elif event.resource in QUOTAS:
            self.quota.lose(f"{event.resource}/{event.name}")
        elif event.resource == EXPLANATIONS:
            self.explanations.pop(event.name, None)
        elif event.resource == CONFIG_MAPS and event.name == GPU_TEMPLATES:
            self.objects.get(CONFIG_MAPS, {}).pop(event.name, None)
            self._object_changed(record, event)
        elif event.resource == CONFIG_MAPS and event.name == CONFIG_MAP:
            self.config_map, self.config_map_fault = None, ""

    def _writer_started(self, record: RecordedEvent, _: WriterStarted) -> None:
        if record.context != "cluster":
            self._advance_clock(record.at_ns)
            return
        # A restarted gateway no longer suppresses what its predecessor did: those pods may be tried again.
        self.gateway_since = record.seq
        if self.dirty is not None:
            self.dirty.pods.update((uid, None) for uid, pod_record in self.pods.items() if pod_record.suppressed_seq)

    def _list_completed(self, record: RecordedEvent, _: InitialListCompleted) -> None:
        self.listed_seq = record.seq

    # metrics-*

    def _node_reported(self, record: RecordedEvent, event: NodeReported) -> None:
        reports = self.reports.setdefault(event.node, {})
        before = reports.get(record.context)
        if before is None or before.report.at_ns <= event.at_ns:
            report = replace(event, pods=()) if event.pods else event
            reports[record.context] = ReportRecord(report, encoded_classes(event.pods), ranges_of_report(event))
            self.reported.setdefault(event.node, {})[record.context] = record.seq
            if self.dirty is not None:
                self.dirty.metrics[event.node] = None

    def _reports_expired(self, record: RecordedEvent, event: NodeReportsExpired) -> None:
        reports = self.reports.get(event.node, {})
        before = reports.get(record.context)
        if before is None or before.report.at_ns > event.at_ns:
            return
        del reports[record.context], self.reported[event.node][record.context]
        if not reports:
            del self.reports[event.node], self.reported[event.node]
        if self.dirty is not None:
            self.dirty.metrics[event.node] = None

    def _settle_load_class(self, pod_record: PodRecord, pod: Pod) -> None:
        """Keeps the class that estimates the pod's load as upstream's cache does.

        A change of spec or conditions replaces it; a change of labels or annotations alone does not. Source:
        spec/scheduler-core.md 3.3.
        """
        if has_other_spec_or_conditions(pod_record, pod):
            self._drop_load_class(pod_record)
        elif pod_record.load_class is None:
            self._keep_load_class(pod_record)

    def _object_changed(self, record: RecordedEvent, event: ObjectObserved | ObjectDeleted) -> None:
        if event.resource in OF_NODES:
            self._changed(event.name, ClusterEvent.TOPOLOGY, record.seq)
        else:
            self.changed[WATCHED.get(event.resource, ClusterEvent.GPU_TEMPLATES)] = record.seq
        if self.dirty is not None:
            self.dirty.objects[event.resource, event.name] = None

    folds: ClassVar[dict[type[Event], Callable[[Any, RecordedEvent, Any], None]]] = {
        NodeObserved: _node_observed,
        NodeDeleted: _node_deleted,
        PodObserved: _pod_observed,
        PodDeleted: _pod_deleted,
        PodEvicted: _pod_evicted,
        NodeMetricObserved: _metric_observed,
        NodeMetricDeleted: _metric_deleted,
        ObjectObserved: _object_observed,
        ObjectDeleted: _object_deleted,
        BindRejected: _placement_not_bound,
        BindFailed: _placement_not_bound,
        BindSuppressed: _placement_not_bound,
        DesiredStateRejected: _status_rejected,
        MissingPermission: _permission_missing,
        WriterStarted: _writer_started,
        InitialListCompleted: _list_completed,
        NodeReported: _node_reported,
        NodeReportsExpired: _reports_expired,
    }
