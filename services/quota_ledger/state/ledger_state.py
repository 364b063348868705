"""The State of the quota ledger: quotas, nodes and pods, the scheduler's placements, and the ledger's own log.

Each context writes its own fields. `desired` computes from them the charge of one pod; where the ledger's log
differs, the pod is in `pods_to_update`.
"""

from typing import ClassVar

import msgspec

from services.quota_ledger.accounting.snapshot_schema import ProjectionSnapshot, restore_into, snapshot_of
from services.quota_ledger.pods.observed_pod import ObservedPod
from services.quota_ledger.state.fold_pods import PodFold
from services.quota_ledger.state.fold_quotas import QuotaFold, namespaces_of
from services.quota_ledger.state.ledger_state_fields import ObjectError, Placement, QuotaObject
from services.quota_ledger.state.open_evictions import OpenEvictions
from services.quota_ledger.state.profile_resources import ProfilesSnapshot
from services.quota_ledger.state.published_status import PublishedPatch
from shared.domain.amounts import Amounts
from shared.domain.gang import GangSettings, settings_of_pod_group
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    BindSuppressed,
    EvictionFailed,
    EvictionRejected,
    EvictionSuppressed,
    IntentRefused,
    MissingPermission,
    NodeDeleted,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import WriterStarted
from shared.events.quota import (
    BalancesOpened,
    CapacitySet,
    OveruseEnded,
    OveruseStarted,
    PodAdmissionDecided,
    PodAttached,
    PodCharged,
    PodChargeReverted,
    PodMoved,
    PodReleased,
    PodResized,
    QuotaDeclared,
    QuotaDeleted,
    QuotaRejected,
    QuotaReparented,
    QuotaUpdated,
    RevocationDecided,
    RuntimeRecomputed,
)
from shared.events.scheduling import CycleDecided, PlacementReleased, PlacementReserved, PodPlaced
from shared.kube.elastic_quota import RESERVED, RESOURCES, DeclaredQuota
from shared.kube.resource_names import POD_GROUPS

OWN: tuple[type[Event], ...] = (
    CapacitySet, OveruseEnded, OveruseStarted, PodAdmissionDecided, PodAttached, PodCharged, PodMoved, PodReleased, PodResized, PodChargeReverted,
    QuotaUpdated, QuotaDeclared, QuotaRejected, QuotaReparented, QuotaDeleted, RevocationDecided, RuntimeRecomputed,
)  # fmt: skip
QUOTA_EVENTS = (QuotaDeclared, QuotaUpdated, QuotaReparented, QuotaDeleted)
FOLDED: dict[str, tuple[type[Event], ...]] = {
    "cluster": (
        NodeObserved, NodeDeleted, PodObserved, PodDeleted, ObjectObserved, ObjectDeleted, BindRejected, BindFailed, BindSuppressed,
        MissingPermission, PodEvicted, EvictionRejected, EvictionFailed, EvictionSuppressed, IntentRefused,
    ),
    "scheduling": (WriterStarted, PodPlaced, PlacementReserved, PlacementReleased, CycleDecided),
    "quota": (*OWN, BalancesOpened, EvictionRequested, FieldsDesired, ObjectDesired),
}  # fmt: skip
"""Context -> event types that are folded."""

_EVICTION_OUTCOMES = (
    PodEvicted,
    EvictionRejected,
    EvictionFailed,
    EvictionSuppressed,
    MissingPermission,
    IntentRefused,
)


class LedgerState(QuotaFold, PodFold):
    """A fold over `cluster`, `scheduling` and `quota`; `StateFields` lists its fields."""

    SCHEMA: ClassVar[int] = 12

    def __init__(self, *, scales_min: bool = True, guarantees: bool = False, default_group: bool = True) -> None:
        super().__init__(scales_min=scales_min, guarantees=guarantees, default_group=default_group)
        for name in RESERVED:
            self._check_quota(name)

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        match record.context:
            case "quota":
                self._own(record.event, record.seq)
                self.published.apply(record)
            case "scheduling":
                self._scheduling(record)
            case _:
                self._cluster(record)
        self.positions[record.context] = record.seq

    def encode(self) -> bytes:
        """Returns the whole State, names sorted."""
        entries = self.pods.entries.items()
        snapshot = StateSnapshot(
            positions=self.positions,
            projection=snapshot_of(self.projection),
            published=self.published.patches,
            profiles=self.profiles.snapshot(),
            quota_objects=self.quota_objects,
            objects=self.objects,
            object_errors=self.object_errors,
            present_numbers=self.present_numbers,
            pod_groups=self.pod_groups,
            nodes=self.nodes,
            pods={
                uid: (each.name, each.started_s, each.since, each.observed)
                for uid, each in entries
                if each.observed is not None
            },
            placements=self.placements,
            evictions=sorted(self.evictions.requested.items()),
            early_evictions=sorted(self.evictions.early),
            cycle_saw=self.cycle_saw,
            epoch=self.epoch,
            cycle=self.cycle,
        )
        return _ENCODER.encode(snapshot)

    def restore(self, data: bytes) -> None:
        """Fills a new State from what `encode` returned."""
        snapshot = msgspec.msgpack.decode(data, type=StateSnapshot)
        self.positions, self.cycle_saw = snapshot.positions, snapshot.cycle_saw
        self.epoch, self.cycle = snapshot.epoch, snapshot.cycle
        self.evictions = OpenEvictions(dict(snapshot.evictions), dict.fromkeys(snapshot.early_evictions))
        self.objects, self.nodes, self.placements = snapshot.objects, snapshot.nodes, snapshot.placements
        self.pod_groups, self.quota_objects = snapshot.pod_groups, snapshot.quota_objects
        self.object_errors, self.present_numbers = snapshot.object_errors, snapshot.present_numbers
        for uid, (name, started_s, since, pod) in snapshot.pods.items():
            self.pods.observe(uid, name, pod, started_s, since)
        restore_into(self.projection, snapshot.projection)
        self.published.patches.update(snapshot.published)
        self.profiles.restore(snapshot.profiles)
        for key, seen in self.quota_objects.items():
            self._keys_of.setdefault(seen.name, {})[key] = None
        self._check_all()

    def history_begins(self, context: str, seq: int) -> None:
        """Compares every pod and quota with the opening balances once all of these are folded; drops placements of pods
        that were gone before `cluster` begins, and outcomes of evictions that have left `quota`.
        """
        if context == "cluster":
            self._cluster_begins(seq)
        if context == "quota":
            self.evictions.begin(seq)
            self._roots = None
            self.structure_changes += 1
            self._check_all()

    def _check_all(self) -> None:
        self.published.note_all(self.projection)
        for uid in self.pods.entries:
            self._check_pod(uid)
        projection = self.projection
        for name in {*self._keys_of, *projection.tree_of, *projection.rejected, *projection.duplicates, *RESERVED}:
            self._check_quota(name)

    def _cluster(self, record: RecordedEvent) -> None:
        self.profiles.apply(record.event)
        match record.event:
            case PodObserved(pod_uid=uid, object=pod):
                self._pod_observed(uid, pod, record.seq)
            case PodDeleted(pod_uid=uid):
                self._pod_deleted(uid, record.seq)
            case NodeObserved(node=name, object=node):
                self._node_changed(name, node)
            case NodeDeleted(node=name):
                self._node_changed(name, None)
            case ObjectObserved(resource=resource, name=key, object=raw) if resource in RESOURCES:
                self._object_observed(f"{resource}/{key}", raw)
            case ObjectDeleted(resource=resource, name=key) if resource in RESOURCES:
                self._object_deleted(f"{resource}/{key}")
            case ObjectObserved(resource=resource, name=gang, object=raw) if resource == POD_GROUPS:
                self.pod_groups[gang] = settings_of_pod_group(gang, raw)
            case ObjectDeleted(resource=resource, name=gang) if resource == POD_GROUPS:
                self.pod_groups.pop(gang, None)
            case (
                BindRejected(pod_uid=uid)
                | BindFailed(pod_uid=uid)
                | BindSuppressed(pod_uid=uid)
                | MissingPermission(pod_uid=uid)
            ):
                self._bind_rejected(uid, record.cause)
        if isinstance(record.event, _EVICTION_OUTCOMES) and record.event.pod_uid:
            self._eviction_ended(record.cause)

    def _eviction_ended(self, cause: Cause | None) -> None:
        # Of the ledger's intents only evictions are about a pod.
        if cause is not None and cause.context == "quota":
            self.evictions.end(cause.seq, self.positions.get("quota", 0))

    def _own(self, event: Event, seq: int) -> None:
        # A quota that moves or goes concerns the accounts above it before the event and after it.
        before = self.projection.lookup.quotas.get(event.quota) if isinstance(event, QUOTA_EVENTS) else None
        if not isinstance(event, RuntimeRecomputed):  # it names the same quotas before and after
            self.published.note_affected(event, self.projection)
        self.projection.fold(event)
        self.published.note_affected(event, self.projection)
        match event:
            case QuotaDeclared() | QuotaUpdated() | QuotaReparented() | QuotaDeleted():
                self._quota_changed(event.quota, before)
            case QuotaRejected(quota=name):
                self.structure_changes += 1
                self._check_quota(name)
            case PodAttached() | PodCharged() | PodChargeReverted() | PodReleased() | PodResized() | PodMoved():
                self._check_pod(event.pod_uid)
            case EvictionRequested(pod_uid=uid):
                self.evictions.request(seq, uid)

    def _quota_changed(self, name: str, before: DeclaredQuota | None) -> None:
        """Checks the pods that the quota has or may get: by their label, by their namespace, or all that had none."""
        self.structure_changes += 1
        self._roots = None
        self._check_quota(name)
        after = self.projection.lookup.quotas.get(name)
        namespaces = {each for quota in (before, after) if quota for each in namespaces_of(quota)}
        groups = [self.pods.by_label.get(name), self.projection.pods_of(name)]
        groups += [self.pods.by_namespace.get(each) for each in sorted(namespaces)]
        for uids in groups:
            for uid in uids:
                self._check_pod(uid)
        if name in RESERVED and before is None:
            for uid, _ in self.pods.observed():
                self._check_pod(uid)


class StateSnapshot(msgspec.Struct, frozen=True):
    """The schema of a snapshot.

    Attributes:
        pods: uid -> (namespace/name, started_s, since, the rest of its object).
        evictions, early_evictions: as in `OpenEvictions`.
    """

    positions: dict[str, int]
    projection: ProjectionSnapshot
    published: dict[str, PublishedPatch]
    profiles: ProfilesSnapshot
    quota_objects: dict[str, QuotaObject]
    objects: dict[str, DeclaredQuota]
    object_errors: dict[str, ObjectError]
    present_numbers: dict[str, tuple[str, ...]]
    pod_groups: dict[str, GangSettings | None]
    nodes: dict[str, Amounts]
    pods: dict[str, tuple[str, float, int, ObservedPod]]
    placements: dict[str, Placement]
    evictions: list[tuple[int, str]]
    early_evictions: list[int]
    cycle_saw: int
    epoch: int
    cycle: int


_ENCODER = msgspec.msgpack.Encoder(order="sorted")
