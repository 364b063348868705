"""What the ledger knows: quotas, nodes and pods as `cluster` has them, placements of `scheduling`, and its own books.

Each context writes fields of its own. What they amount to for one pod is `wanted`; where the books say otherwise, the pod is `due`.
"""

from typing import ClassVar

import msgspec

from services.quota_ledger.accounting.snapshot_schema import ProjectionSnapshot, image_of, restored
from services.quota_ledger.state.fold_pods import PodFold
from services.quota_ledger.state.fold_quotas import QuotaFold, spaces_of
from services.quota_ledger.state.pod_record import Placement, PodRecord, seen_of
from services.quota_ledger.state.profile_resources import ProfilesSnapshot
from services.quota_ledger.state.published_status import PublishedPatch
from services.quota_ledger.state.state_fields import ObjectError
from shared.domain.amounts import Amounts
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    BindSuppressed,
    MissingPermission,
    NodeDeleted,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import WriterStarted
from shared.events.quota import (
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
from shared.events.scheduling import CycleDecided, PodPlaced
from shared.kube.elastic_quota import RESERVED, RESOURCES, DeclaredQuota

OWN: tuple[type[Event], ...] = (
    CapacitySet, OveruseEnded, OveruseStarted, PodAdmissionDecided, PodAttached, PodCharged, PodMoved, PodReleased, PodResized, PodChargeReverted,
    QuotaUpdated, QuotaDeclared, QuotaRejected, QuotaReparented, QuotaDeleted, RevocationDecided, RuntimeRecomputed,
)  # fmt: skip
FOLDED: dict[str, tuple[type[Event], ...]] = {
    "cluster": (
        NodeObserved, NodeDeleted, PodObserved, PodDeleted, ObjectObserved, ObjectDeleted, BindRejected, BindFailed, BindSuppressed,
        MissingPermission,
    ),
    "scheduling": (WriterStarted, PodPlaced, CycleDecided),
    "quota": (*OWN, FieldsDesired, ObjectDesired),
}  # fmt: skip
"""Context -> event types folded; the others pass."""


class LedgerState(QuotaFold, PodFold):
    """A fold over `cluster`, `scheduling` and `quota`; its fields are those of `StateFields`."""

    SCHEMA: ClassVar[int] = 3

    def __init__(self, *, scales_min: bool = True, guarantees: bool = False, default_group: bool = True) -> None:
        super().__init__(scales_min=scales_min, guarantees=guarantees, default_group=default_group)
        for name in RESERVED:
            self._look_at_quota(name)

    def apply(self, record: RecordedEvent) -> None:
        """Fold one event."""
        match record.context:
            case "quota":
                self._own(record.event)
                self.published.apply(record)
            case "scheduling":
                self._scheduling(record)
            case _:
                self._cluster(record)
        self.positions[record.context] = record.seq

    def encode(self) -> bytes:
        """Everything, names sorted."""
        image = StateSnapshot(
            positions=self.positions,
            projection=image_of(self.projection),
            told=self.published.told,
            profiles=self.profiles.image(),
            objects=self.objects,
            faults=self.faults,
            says=self.says,
            nodes=self.nodes,
            seen=self.seen,
            placed=self.placed,
            cycle_saw=self.cycle_saw,
            epoch=self.epoch,
            cycle=self.cycle,
        )
        return _ENCODER.encode(image)

    def restore(self, data: bytes) -> None:
        """Take over what `encode` wrote."""
        image = msgspec.msgpack.decode(data, type=StateSnapshot)
        self.positions, self.cycle_saw = image.positions, image.cycle_saw
        self.epoch, self.cycle = image.epoch, image.cycle
        self.objects, self.nodes, self.placed = image.objects, image.nodes, image.placed
        self.faults, self.says = image.faults, image.says
        restored(self.projection, image.projection)
        self.published.restore(image.told, self.projection)
        self.profiles.restore(image.profiles)
        for uid, seen in image.seen.items():
            self._put(uid, seen)
        for uid in self.projection.pods:
            self._look(uid)
        for key, quota in self.objects.items():
            self._keys_of.setdefault(quota.name, {})[key] = None
        faulty = [fault.name for fault in self.faults.values()]
        for name in {*self._keys_of, *self.projection.tree_of, *self.projection.rejected, *faulty, *RESERVED}:
            self._look_at_quota(name)

    def _cluster(self, record: RecordedEvent) -> None:
        self.profiles.apply(record.event)
        match record.event:
            case PodObserved(pod_uid=uid, object=pod):
                self._put(uid, seen_of(pod))
            case PodDeleted(pod_uid=uid):
                self._forget(uid)
            case NodeObserved(node=name, object=node):
                self._node(name, node)
            case NodeDeleted(node=name):
                self._node(name, None)
            case ObjectObserved(resource=resource, name=key, object=raw) if resource in RESOURCES:
                self._object(f"{resource}/{key}", raw)
            case ObjectDeleted(resource=resource, name=key) if resource in RESOURCES:
                self._object_gone(f"{resource}/{key}")
            case (
                BindRejected(pod_uid=uid)
                | BindFailed(pod_uid=uid)
                | BindSuppressed(pod_uid=uid)
                | MissingPermission(pod_uid=uid)
            ):
                self._bind_refused(uid, record.cause)

    def _own(self, event: Event) -> None:
        before = None
        if isinstance(event, QuotaDeclared | QuotaUpdated | QuotaReparented | QuotaDeleted):
            before = self.projection.names.quotas.get(event.quota)
        self.published.touch(event, self.projection)
        self.projection.apply(event)
        self.published.touch(event, self.projection)
        match event:
            case (
                QuotaDeclared(quota=name)
                | QuotaUpdated(quota=name)
                | QuotaReparented(quota=name)
                | QuotaDeleted(quota=name)
            ):
                self.structure_changes += 1
                self._roots = None
                self._look_at_quota(name)
                after = self.projection.names.quotas.get(name)
                spaces = {space for quota in (before, after) if quota for space in spaces_of(quota)}
                uids = [self._of_label.get(name, {}), self.projection.pods_of.get(name, {})]
                uids += [self._in_namespace.get(space, {}) for space in sorted(spaces)]
                for group in uids:
                    for uid in list(group):
                        self._look(uid)
                if name in RESERVED and before is None:
                    for uid in self.seen:
                        self._look(uid)
            case QuotaRejected(quota=name):
                self.structure_changes += 1
                self._look_at_quota(name)
            case PodAttached() | PodCharged() | PodChargeReverted() | PodReleased() | PodResized() | PodMoved():
                self._look(event.pod_uid)


class StateSnapshot(msgspec.Struct, frozen=True):
    """What a snapshot holds."""

    positions: dict[str, int]
    projection: ProjectionSnapshot
    told: dict[str, PublishedPatch]
    profiles: ProfilesSnapshot
    objects: dict[str, DeclaredQuota]
    faults: dict[str, ObjectError]
    says: dict[str, tuple[str, ...]]
    nodes: dict[str, Amounts]
    seen: dict[str, PodRecord]
    placed: dict[str, Placement]
    cycle_saw: int
    epoch: int
    cycle: int


_ENCODER = msgspec.msgpack.Encoder(order="sorted")
