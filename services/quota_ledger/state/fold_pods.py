"""The half of the State that follows pods: their objects, placements, and desired charges."""

from msgspec.structs import replace

from services.quota_ledger.pods.observed_pod import observed_of, started_s
from services.quota_ledger.pods.pod_quota_entry import AttachedPod
from services.quota_ledger.pods.pod_table import PodEntry
from services.quota_ledger.state.ledger_state_fields import Placement, StateFields
from shared.domain.amounts import mask
from shared.events import Cause, RecordedEvent
from shared.events.log import WriterStarted
from shared.events.scheduling import CycleDecided, PlacementReleased, PlacementReserved, PodPlaced
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.pod import Pod


class PodFold(StateFields):
    """Folds pods and placements."""

    def desired(self, uid: str) -> AttachedPod | None:
        """Returns the quota, request and charge that a pod should have; None when it counts in no quota."""
        return self._desired(uid, self.pods.entries.get(uid))

    def _desired(self, uid: str, entry: PodEntry | None) -> AttachedPod | None:
        if entry is None or (pod := entry.observed) is None or pod.ended:
            return None
        quota, matched_by = self.projection.lookup.resolve(pod.namespace, {QUOTA_NAME: pod.label})
        tree = self.projection.tree_of.get(quota)
        if tree is None:
            return None
        counted = self.projection.trees[tree].quotas[quota].declared.max
        charged = pod.bound or self.is_placed(uid) or self._is_charged_for_open_cycle(entry.attached)
        return AttachedPod(tree, quota, mask(pod.request, counted), pod.preemptible, charged, matched_by)

    def is_placed(self, uid: str) -> bool:
        """Returns whether the scheduler has placed a pod and that was not rejected."""
        placement = self.placements.get(uid)
        return placement is not None and placement.seq > placement.rejected_seq

    def is_late(self, epoch: int, cycle: int) -> bool:
        """Returns whether a cycle has placed all the pods that it ever will."""
        return epoch < self.epoch or cycle <= self.cycle

    def _is_charged_for_open_cycle(self, pod: AttachedPod | None) -> bool:
        """Returns whether a pod is charged for a cycle that may still place it."""
        return pod is not None and pod.charged and pod.epoch > 0 and not self.is_late(pod.epoch, pod.cycle)

    def _scheduling(self, record: RecordedEvent) -> None:
        match record.event:
            case WriterStarted(epoch=epoch):
                self.epoch = epoch
                self._check_open_charges()
            case CycleDecided(seen=seen, cycle=cycle, pods=outcomes, reservations=reservations):
                self.cycle_saw = (seen or {}).get("cluster", 0)
                self.cycle = cycle
                for outcome in outcomes:
                    if outcome.node and outcome.pod_uid not in reservations:
                        # Its PodPlaced follows in the log; a charge must not be reverted between the two.
                        self._place(outcome.pod_uid, cycle, record.seq, self.cycle_saw)
                self._check_open_charges()
            case PodPlaced(pod_uid=uid, cycle=cycle, seen=seen):
                # Where the placement was carried forward, its cycle may be gone: the copy has the positions itself.
                self._place(uid, cycle, record.seq, self.cycle_saw if seen is None else seen.get("cluster", 0))
            case PlacementReserved(holder_uid=uid, kind="Pod", cycle=cycle, seen=seen):
                self._place(uid, cycle, record.seq, self.cycle_saw if seen is None else seen.get("cluster", 0))
            case PlacementReleased(holder_uid=uid, kind="Pod") if uid in self.placements:
                self._end_placement(uid, record.seq)

    def _is_observed(self, uid: str) -> bool:
        entry = self.pods.entries.get(uid)
        return entry is not None and entry.observed is not None

    def _place(self, uid: str, cycle: int, seq: int, saw: int) -> None:
        # The cycle saw this pod. If it is absent although `cluster` is read that far, it was deleted; if it was first
        # observed later, it is another pod of that uid, which came back.
        entry = self.pods.entries.get(uid)
        if entry is not None and entry.observed is not None:
            is_seen = not saw or entry.since <= saw
        else:
            is_seen = self.positions.get("cluster", 0) < saw
        if is_seen:
            self.placements[uid] = replace(self.placements.get(uid, Placement()), seq=seq, cycle=cycle, saw=saw)
            self._check_pod(uid)

    def _bind_rejected(self, uid: str, cause: Cause | None) -> None:
        if cause is not None and cause.context == "scheduling" and self._is_observed(uid):
            self._end_placement(uid, cause.seq)

    def _end_placement(self, uid: str, seq: int) -> None:
        """Ends the placements up to a seq of `scheduling`."""
        placement = self.placements.get(uid, Placement())
        self.placements[uid] = replace(placement, rejected_seq=max(placement.rejected_seq, seq))
        self._check_pod(uid)

    def _pod_observed(self, uid: str, pod: Pod, seq: int) -> None:
        entry = self.pods.entries.get(uid)
        started = entry.started_s if entry is not None and entry.started_s else started_s(pod)
        self.pods.observe(uid, pod.metadata.key, observed_of(pod), started, seq)
        self._check_pod(uid)

    def _pod_deleted(self, uid: str, seq: int) -> None:
        self.pods.forget(uid)
        placement = self.placements.pop(uid, None)
        if placement is not None and placement.saw >= seq:  # of the pod that comes back under this uid
            self.placements[uid] = replace(placement, rejected_seq=0)
        self._check_pod(uid)

    def _cluster_begins(self, seq: int) -> None:
        for entry in self.pods.entries.values():
            entry.since = 0  # a copy is the newest observation; the first one has left the log
        for uid, placement in list(self.placements.items()):
            if placement.saw <= seq and not self._is_observed(uid):
                del self.placements[uid]
                self._check_pod(uid)

    def _check_open_charges(self) -> None:
        for uid in list(self._charged_for_open_cycle):
            self._check_pod(uid)

    def _check_pod(self, uid: str) -> None:
        entry = self.pods.entries.get(uid)
        attached = entry.attached if entry is not None else None
        if self._is_charged_for_open_cycle(attached):
            self._charged_for_open_cycle[uid] = None
        else:
            self._charged_for_open_cycle.pop(uid, None)
        desired = self._desired(uid, entry)
        if attached.matches(desired) if attached is not None else desired is None:
            self._drop_update(uid)
        else:
            self.pods_to_update[uid] = None

    def _drop_update(self, uid: str) -> None:
        if self.pods_to_update.pop(uid, False) is None and not self.pods_to_update:
            self.pods_to_update = {}  # a dictionary keeps its largest size: 5 MB after the first 100,000 pods
