"""What the ledger knows of pods: which there are, which our scheduler has placed, and what each should hold."""

from msgspec.structs import replace

from services.quota_ledger.accounting.projection import AttachedPod
from services.quota_ledger.state.pod_record import Placement, PodRecord, same
from services.quota_ledger.state.state_fields import StateFields
from shared.domain.amounts import mask
from shared.events import Cause, RecordedEvent
from shared.events.log import WriterStarted
from shared.events.scheduling import CycleDecided, PodPlaced
from shared.kube.elastic_quota import QUOTA_NAME


class PodFold(StateFields):
    """The half of the fold that is of pods."""

    def wanted(self, uid: str) -> AttachedPod | None:
        """What a pod should hold, by all that has been read; None when nothing."""
        seen = self.seen.get(uid)
        if seen is None or seen.ended:
            return None
        quota, matched_by = self.projection.names.resolve(seen.namespace, {QUOTA_NAME: seen.label})
        tree = self.projection.tree_of.get(quota)
        if tree is None:
            return None
        counted = self.projection.trees[tree].quotas[quota].declared.max
        return AttachedPod(
            seen.pod,
            tree,
            quota,
            mask(seen.request, counted),
            seen.preemptible,
            charged=bool(seen.node) or self.is_placed(uid) or self.is_asked_for(uid),
            matched_by=matched_by,
        )

    def is_placed(self, uid: str) -> bool:
        """Whether our scheduler has placed the pod, and nobody refused that."""
        placed = self.placed.get(uid)
        return placed is not None and placed.seq > placed.refused_seq

    def is_over(self, epoch: int, number: int) -> bool:
        """Whether a cycle of the scheduler can place nothing any more that it has not placed."""
        return epoch < self.epoch or number <= self.cycle

    def is_asked_for(self, uid: str) -> bool:
        """Whether the pod is charged for a cycle that may yet place it."""
        held = self.projection.pods.get(uid)
        return held is not None and held.charged and held.epoch > 0 and not self.is_over(held.epoch, held.cycle)

    def _scheduling(self, record: RecordedEvent) -> None:
        match record.event:
            case WriterStarted(epoch=epoch):
                self.epoch = epoch
                self._look_at_asked()
            case CycleDecided(seen=seen, cycle=number, pods=outcomes):
                self.cycle_saw = (seen or {}).get("cluster", 0)
                self.cycle = number
                for outcome in outcomes:
                    if outcome.node:  # its PodPlaced follows; until that is read the charge must not be given back
                        self._place(outcome.pod_uid, number, record.seq)
                self._look_at_asked()
            case PodPlaced(pod_uid=uid, cycle=number):
                self._place(uid, number, record.seq)

    def _place(self, uid: str, number: int, seq: int) -> None:
        # The cycle saw this pod; absent although we have read as far means gone for good.
        if uid in self.seen or self.positions.get("cluster", 0) < self.cycle_saw:
            placed = self.placed.get(uid, Placement())
            self.placed[uid] = replace(placed, seq=seq, cycle=number)
            self._look(uid)

    def _bind_refused(self, uid: str, cause: Cause | None) -> None:
        if cause is not None and cause.context == "scheduling" and uid in self.seen:
            placed = self.placed.get(uid, Placement())
            self.placed[uid] = replace(placed, refused_seq=max(placed.refused_seq, cause.seq))
            self._look(uid)

    def _put(self, uid: str, seen: PodRecord) -> None:
        self._unindex(uid)
        self.seen[uid] = seen
        self._in_namespace.setdefault(seen.namespace, {})[uid] = None
        if seen.label:
            self._of_label.setdefault(seen.label, {})[uid] = None
        self._look(uid)

    def _forget(self, uid: str) -> None:
        self._unindex(uid)
        self.seen.pop(uid, None)
        self.placed.pop(uid, None)
        self._look(uid)

    def _unindex(self, uid: str) -> None:
        if (seen := self.seen.get(uid)) is not None:
            self._in_namespace[seen.namespace].pop(uid, None)
            self._of_label.get(seen.label, {}).pop(uid, None)

    def _look_at_asked(self) -> None:
        for uid in list(self._asked):
            self._look(uid)

    def _look(self, uid: str) -> None:
        if self.is_asked_for(uid):
            self._asked[uid] = None
        else:
            self._asked.pop(uid, None)
        if same(self.projection.pods.get(uid), self.wanted(uid)):
            self.due.pop(uid, None)
        else:
            self.due[uid] = None
