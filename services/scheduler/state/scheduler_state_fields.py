"""The fields of `SchedulerState`, and the methods that both folds share.

`fold_cluster.py` folds observations, `fold_scheduling.py` the scheduler's own decisions; both are joined in
`scheduler_state.py`.
"""

from typing import Any

from msgspec.structs import replace

from services.scheduler.state.answered_schedule_explanations import LastAnswer
from services.scheduler.state.chosen_volumes import ChosenVolume
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.gang_records import GangRecords
from services.scheduler.state.gang_wait_history import no_waits
from services.scheduler.state.names_changed_since_cache_settled import DirtySet
from services.scheduler.state.newest_desired_states import NewestWrites
from services.scheduler.state.node_record import NodeRecord
from services.scheduler.state.packed_controllers import packed
from services.scheduler.state.packed_pod_observation import has_other_numbers, read_from_object
from services.scheduler.state.packed_reported_pods import encoded_usages
from services.scheduler.state.planned_start_records import PlannedStart, UnitKey
from services.scheduler.state.pod_equivalence_class import (
    PodClass,
    allocation_annotations,
    class_key,
    common_part,
    identified_key,
)
from services.scheduler.state.pod_scheduling_record import PodRecord, conditions_checksum, started_ns, true_since_ns
from services.scheduler.state.quota_view import QuotaView
from services.scheduler.state.reserve_pods import LastStatus
from services.scheduler.state.usage_records import MetricRecord, ReportRecord
from services.scheduler.state.watched_api_resources import POD_GROUPS, RESERVATIONS, VOLUMES
from shared.domain.reservation import Owner
from shared.domain.reservation_owners import Identity, named_identity
from shared.domain.usage_plausibility import ranges_of_status
from shared.events.cluster import ObjectDeleted
from shared.kube.pod import Pod


class SchedulerStateFields:
    """The State of the cluster and of the scheduler's own decisions.

    Attributes:
        pods: uid -> record.
        nodes: name -> record; present exactly while the node is observed.
        metrics: node name -> its NodeMetric object.
        reports: node name -> context of `metrics-*` -> the newest report in it; reported: the same -> the seq of that
            report.
        objects: resource -> key -> object, of the resources in `watched_resources.WATCHED`.
        explanations: `namespace/name` -> ScheduleExplanation object; explanation_answers: the same -> its last answer.
        changed: per ClusterEvent the `cluster` seq of the last one that belongs to no node.
        chosen: uid of a volume -> the claim that one of our placements chose it for. A claim written in the volume
            itself takes precedence.
        unselected: claim -> `cluster` seq at which its selected node was removed while it had no volume, since the
            provisioner rejected the node, or at which the claim came without a volume.
        released_seq: `cluster` seq of the last event by which a placement may have released its capacity, on any node.
        hold_released_seq: `scheduling` seq of the last PlacementReleased or UnitStartPlanned, or of the last nomination
            that was lost to no other pod: pods that were refused for capacity that was kept are tried again.
        gateway_since: `cluster` seq at which the gateway last started.
        listed_seq: `cluster` seq at which the gateway last completed its initial lists; observations before it may be
            incomplete.
        config_map: text of CONFIG_MAP; None while it does not exist, or has no text that is read.
        config_map_fault: why the one that exists has none; else empty. config_map_uid: its uid.
        clock_ns: time of the last cycle or start of a writer in our own log, by the clock of that writer.
        cycle, cycle_saw, cycle_ns: the last cycle of our log: its number, the `cluster` seq that it had read, its
            `now_ns`.
        config_source, config_text, config_digest: the configuration in force, empty before the first; config_seq: the
            `scheduling` seq at which it came into force.
        config_settings: settings of the process that came into force with it and shape decisions.
        refused_digest: digest of the last configuration that was rejected; empty when one was applied since.
        identities: uid of a pod without a node -> its name and controllers, which a Reservation may name.
        identity_owners: Reservation -> its owners by object and controller, if it has any.
        reservation_statuses, pod_group_statuses: Reservation or PodGroup -> its last desired status.
        writes: resource -> object -> the newest desired state of ours.
        pod_classes: key -> class of equal pods.
        quota: quotas and charges as the quota ledger recorded them, and the charges that are still to be requested.
        gangs: the gangs of pods, and their settings.
        planned_starts: unit that waits -> its planned start.
        gang_waits: the newest waits of gangs that were placed, in the order of their placement.
        awaited: uid of a pod that our own log names and no observation has yet -> the `cluster` seq that had been read
            there; for the time of a start alone.
        cluster_begins: seq behind which this fold of `cluster` began; 0 after a snapshot, which later decisions follow.
        dirty: names that a cache has yet to settle; None while there is no cache.
    """

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.pods: dict[str, PodRecord] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.metrics: dict[str, MetricRecord] = {}
        self.reports: dict[str, dict[str, ReportRecord]] = {}
        self.reported: dict[str, dict[str, int]] = {}
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        self.explanations: dict[str, dict[str, Any]] = {}
        self.explanation_answers: dict[str, LastAnswer] = {}
        self.changed: list[int] = [0] * len(ClusterEvent)
        self.chosen: dict[str, ChosenVolume] = {}
        self.unselected: dict[str, int] = {}
        self.writes = NewestWrites()
        self.released_seq = 0
        self.hold_released_seq = 0
        self.gateway_since = 0
        self.listed_seq = 0
        self.config_map: str | None = None
        self.config_map_fault = ""
        self.config_map_uid = ""
        self.clock_ns = 0
        self.cycle = 0
        self.cycle_saw = 0
        self.cycle_ns = 0
        self.config_source = ""
        self.config_text = ""
        self.config_digest = ""
        self.config_seq = 0
        self.config_settings: dict[str, str] = {}
        self.refused_digest = ""
        self.identities: dict[str, Identity] = {}
        self.identity_owners: dict[str, tuple[Owner, ...]] = {}
        self.reservation_statuses: dict[str, LastStatus] = {}
        self.pod_group_statuses: dict[str, LastStatus] = {}
        self.pod_classes: dict[bytes, PodClass] = {}
        self.quota = QuotaView()
        self.gangs = GangRecords()
        self.gang_waits = no_waits()
        self.planned_starts: dict[UnitKey, PlannedStart] = {}
        self.awaited: dict[str, int] = {}
        self.cluster_begins = 0
        self.dirty: DirtySet | None = None
        self._unread: list[PodRecord] = []
        self._unread_metrics: dict[str, None] = {}

    def _changed(self, node: str, change: ClusterEvent, seq: int) -> None:
        node_record = self.nodes.get(node)
        if node_record is not None:
            node_record.changed[change] = seq
            if self.dirty is not None:
                self.dirty.nodes.setdefault(node)

    def read(self) -> None:
        """Reads the newest object of every pod and the newest NodeMetrics into their records."""
        self.read_pods()
        self.read_metrics()

    def read_pods(self) -> None:
        """Reads the newest object of every pod into its record: the class, and the time since which it counts on its
        node.
        """
        for pod_record in self._unread:
            pod = pod_record.observed
            if pod is None:
                continue  # deleted since it was observed
            pod_record.observed = None
            status = pod.status
            scheduled_ns, initialized_ns = true_since_ns(pod) if status.conditions else (0, 0)
            started = started_ns(pod) if status.start_time else 0
            conditions = conditions_checksum(pod) if pod.spec.node_name else 0
            if scheduled_ns or initialized_ns or started or conditions or has_other_numbers(pod_record.observation):
                pod_record.observation = read_from_object(
                    pod_record.observation, scheduled_ns, initialized_ns, started, conditions
                )
            annotations = pod.metadata.annotations
            pod_record.allocation = allocation_annotations(annotations) if annotations else None
            if pod.spec.node_name:
                self.identities.pop(pod_record.uid, None)
                pod_record.controllers = packed(pod.metadata.owner_references)
            else:
                self.identities[pod_record.uid] = _identity(pod)
            self._set_class(pod_record, class_key(pod), pod)
        self._unread.clear()

    def read_metrics(self) -> None:
        """Reads the pods and the amounts of every new NodeMetric into its record."""
        for node in self._unread_metrics:
            record = self.metrics[node]
            metric, status = record.metric, record.metric.status
            pods, ranges = encoded_usages(status.pods_metric), ranges_of_status(status)
            if status.pods_metric:
                metric = replace(metric, status=replace(status, pods_metric=()))
            self.metrics[node] = record._replace(metric=metric, pods=pods, ranges=ranges)
        self._unread_metrics.clear()

    def _set_class(self, pod_record: PodRecord, key: bytes, pod: Pod) -> None:
        """Counts a pod in the class of equal pods.

        Args:
            key: of the class without the identity that a Reservation may name.
        """
        identity = None
        if self.identity_owners and pod_record.uid in self.identities:
            identity = self._named_part(pod.metadata.namespace, self.identities[pod_record.uid])
        full_key, before = identified_key(key, identity) if identity else key, pod_record.pod_class
        pod_class = self.pod_classes.get(full_key)
        if pod_class is None:
            pod_class = PodClass(key, common_part(pod), identity)
            self.pod_classes[pod_class.key] = pod_class
        if pod_class is not before:
            pod_class.pods += 1
            pod_record.pod_class = pod_class
            if before is not None:
                self._forget(before)

    def identity_of(self, pod: Pod) -> Identity | None:
        """Returns the part of a pod's identity that some Reservation names, for a pod that need not exist."""
        return self._named_part(pod.metadata.namespace, _identity(pod)) if self.identity_owners else None

    def _named_part(self, namespace: str, identity: Identity) -> Identity | None:
        owners = (owner for each in self.identity_owners.values() for owner in each)
        return named_identity(owners, namespace, identity)

    def _set_identity_owners(self, name: str, owners: tuple[Owner, ...]) -> None:
        """Notes the owners of a Reservation that name pods by more than labels, and classifies waiting pods anew."""
        if self.identity_owners.get(name, ()) == owners:
            return
        if owners:
            self.identity_owners[name] = owners
        else:
            del self.identity_owners[name]
        self.read()
        for uid in self.identities:
            pod_record = self.pods[uid]
            if pod_record.pod_class is None:
                continue
            before, pod = pod_record.pod_class, pod_record.pod_class.pod
            self._set_class(pod_record, class_key(pod), pod)
            if pod_record.pod_class is not before and self.dirty is not None:
                self.dirty.pods[uid] = None

    def _keep_load_class(self, pod_record: PodRecord) -> None:
        """Keeps the present class of a pod as the one that its load is estimated by."""
        self.read()
        if pod_record.pod_class is not None:
            pod_record.load_class = pod_record.pod_class
            pod_record.pod_class.pods += 1

    def _drop_load_class(self, pod_record: PodRecord) -> None:
        """Estimates the load of a pod by its class again."""
        if pod_record.load_class is not None:
            self._forget(pod_record.load_class)
            pod_record.load_class = None

    def _forget(self, pod_class: PodClass) -> None:
        pod_class.pods -= 1
        if pod_class.pods == 0:
            del self.pod_classes[pod_class.key]

    def _forget_status(self, statuses: dict[str, LastStatus], deleted: ObjectDeleted) -> None:
        """Forgets the status of a deleted object; one of the same name that came after it has its own."""
        last = statuses.get(deleted.name)
        if last is not None and last.uid == deleted.uid:
            del statuses[deleted.name]

    def forget_statuses_of_the_gone(self) -> None:
        """Forgets the statuses and choices of objects that are not there: where one is folded after its object's
        deletion, the deletion did not find it.
        """
        for resource, statuses in ((RESERVATIONS, self.reservation_statuses), (POD_GROUPS, self.pod_group_statuses)):
            there = self.objects.get(resource, {})
            for name, last in list(statuses.items()):
                if (there.get(name, {}).get("metadata") or {}).get("uid") != last.uid:
                    del statuses[name]
        self.writes.forget_the_gone(self.objects)
        volumes = self.objects.get(VOLUMES, {})
        for uid, chosen in list(self.chosen.items()):
            if (volumes.get(chosen.volume, {}).get("metadata") or {}).get("uid") != uid:
                del self.chosen[uid]

    def _advance_clock(self, at_ns: int) -> None:
        """Notes the time of a record in our own log.

        A clock may be behind the last one: it was set, or another replica leads. Times ahead of it are set back, since
        a pod that was tried by the faster clock would otherwise wait for as long as the two differ.
        """
        if at_ns < self.clock_ns:
            for pod_record in self.pods.values():
                if max(pod_record.tried_ns, pod_record.placed_ns) <= at_ns:
                    continue
                pod_record.placed_ns = min(pod_record.placed_ns, at_ns)
                if pod_record.tried_ns > at_ns:
                    pod_record.note_decision(attempt=replace(pod_record.attempt, at_ns=at_ns))
                if self.dirty is not None:
                    self.dirty.pods[pod_record.uid] = None
        self.clock_ns = at_ns


def _identity(pod: Pod) -> Identity:
    metadata = pod.metadata
    return Identity(metadata.name, metadata.uid, metadata.owner_references)
