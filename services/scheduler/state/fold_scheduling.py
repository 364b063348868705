"""The fold of the scheduler's own log, `scheduling`."""

from collections.abc import Callable
from sys import intern
from typing import Any, ClassVar

from services.scheduler.state.answered_schedule_explanations import EXPLANATIONS, LastAnswer, digest_of, forget_old
from services.scheduler.state.chosen_volumes import chosen_volume
from services.scheduler.state.gang_wait_history import GangWait
from services.scheduler.state.planned_start_records import PlannedStart, UnitKey
from services.scheduler.state.pod_attempts_and_refusals import (
    FOR_UNIT,
    FOR_VOLUMES,
    NOT_PREPARED,
    TIMED_OUT,
    Attempt,
    Hold,
    PluginReason,
)
from services.scheduler.state.pod_equivalence_class import allocation_annotations
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.reserve_pods import LastStatus, status_digest
from services.scheduler.state.scheduler_state_fields import SchedulerStateFields
from services.scheduler.state.watched_api_resources import POD_GROUPS, RESERVATIONS, VOLUMES
from shared.domain.reservation import PRE_ALLOCATION_FIELDS
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import (
    EvictionFailed,
    EvictionRejected,
)
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.log import ConfigApplied, ConfigRejected
from shared.events.scheduling import (
    ClassEvaluated,
    CycleDecided,
    GangPlaced,
    PlacementCompared,
    PlacementReleased,
    PlacementReserved,
    PodNominated,
    PodPlaced,
    PodUnschedulable,
    ReservationUnschedulable,
    UnitStartPlanned,
)
from shared.kube.system_annotations import RESERVATION_ALLOCATED

_REASONS_OF_RELEASE = {FOR_UNIT: TIMED_OUT, FOR_VOLUMES: NOT_PREPARED}
"""What a hold waited for -> the reason of its pod once it is released."""


class SchedulingFold(SchedulerStateFields):
    """Folds the scheduler's decisions and its accepted configuration."""

    def _cycle_decided(self, record: RecordedEvent, event: CycleDecided) -> None:
        self._advance_clock(record.at_ns)
        self.cycle = event.cycle
        self.cycle_saw = (event.seen or {}).get("cluster", 0)
        self.cycle_ns = event.now_ns or 0
        saw_reports = {name: seq for name, seq in (event.seen or {}).items() if name.startswith("metrics-")}
        saw_quota = max((event.seen or {}).get("quota", 0), event.charged_at)
        attempts: dict[int, Attempt] = {}
        for outcome in event.pods:
            if outcome.node or (pod_record := self._seen_by_cycle(outcome.pod_uid, event)) is None:
                continue
            attempt = attempts.get(outcome.class_index)
            if attempt is None:
                reasons = _reasons(event.classes[outcome.class_index])
                attempt = attempts[outcome.class_index] = Attempt(
                    self.cycle_ns, record.seq, self.cycle_saw, saw_quota, saw_reports, reasons, self.hold_released_seq
                )
            pod_record.attempts += 1
            pod_record.note_decision(attempt=attempt)
            if self.dirty is not None:
                self.dirty.pods[pod_record.uid] = None

    def _pod_placed(self, record: RecordedEvent, event: PodPlaced) -> None:
        self._placed(record, event, event.pod_uid)

    def _placed(self, record: RecordedEvent, event: PodPlaced | PlacementReserved, uid: str) -> PodRecord | None:
        """Counts a pod on its node; returns its record, None when it is deleted."""
        pod_record = self._seen_by_cycle(uid, event)
        if pod_record is None:
            return None
        pod_record.placed_node = intern(event.node)
        pod_record.placed_seq = record.seq
        # Where the placement was carried forward, its cycle may be gone.
        pod_record.placed_ns = self.cycle_ns if event.cycle == self.cycle else record.at_ns
        allocation = allocation_annotations(event.annotations)
        if allocation is not None or pod_record.decisions is not None:
            # A Reservation that took it over on an earlier node has it no more.
            pod_record.note_decision(placed_allocation=allocation, pre_allocated="")
        pod_record.attempts = 0
        pod_record.nominated = ""
        if self.dirty is not None:
            self.dirty.pods[uid] = None
        return pod_record

    def _gang_placed(self, record: RecordedEvent, event: GangPlaced) -> None:
        self.gang_waits.append(
            GangWait(
                record.seq,
                event.gang,
                record.at_ns,
                event.waited_ns,
                event.pods,
                event.request,
                event.quota,
                event.priority,
                event.qos,
            )
        )

    def _unit_start_planned(self, record: RecordedEvent, event: UnitStartPlanned) -> None:
        self.hold_released_seq = record.seq
        key = UnitKey(event.scheduler, event.plugin, event.unit)
        if event.nodes:
            self.planned_starts[key] = PlannedStart(record.seq, event.nodes, event.waits_for, event.starts_ns)
        else:
            self.planned_starts.pop(key, None)

    def _placement_reserved(self, record: RecordedEvent, event: PlacementReserved) -> None:
        before = self.pods.get(event.holder_uid)
        attempts = 0 if before is None else before.attempts
        pod_record = self._placed(record, event, event.holder_uid)
        if pod_record is not None:
            saw = self.cycle_saw if event.seen is None else event.seen.get("cluster", 0)
            pod_record.note_decision(
                hold=Hold(record.seq, event.waits_for, event.unit, attempts, saw, event.annotations)
            )

    def _placement_released(self, record: RecordedEvent, event: PlacementReleased) -> None:
        self.hold_released_seq = record.seq
        pod_record = self._seen_by_cycle(event.holder_uid, event)
        # A later placement may have been rejected, and the rejection folded before: our own log alone states the hold.
        hold = None if pod_record is None else pod_record.unreleased_hold
        if pod_record is not None and hold is not None:
            reason = _REASONS_OF_RELEASE.get(hold.waits_for)
            if reason is not None:
                attempt = Attempt(record.at_ns, record.seq, self.cycle_saw, 0, {}, (reason,), record.seq)
                pod_record.attempts = 1 + (hold.attempts if reason == NOT_PREPARED else 0)
                pod_record.note_decision(attempt=attempt)
            pod_record.note_decision(released_seq=record.seq)
            if self.dirty is not None:
                self.dirty.pods[event.holder_uid] = None

    def _pod_nominated(self, record: RecordedEvent, event: PodNominated) -> None:
        if event.reason:  # what was kept for it is free; it went to no other pod
            self.hold_released_seq = record.seq
        pod_record = self._seen_by_cycle(event.pod_uid, event)
        if pod_record is not None:
            pod_record.nominated = intern(event.node)
            if self.dirty is not None:
                self.dirty.pods[event.pod_uid] = None

    def _eviction_requested(self, record: RecordedEvent, event: EvictionRequested) -> None:
        pod_record = self._seen_by_cycle(event.pod_uid, event, record.cause)
        if pod_record is not None:
            pod_record.note_decision(eviction_seq=record.seq)
            if self.dirty is not None:
                self.dirty.pods[event.pod_uid] = None

    def _eviction_refused(self, record: RecordedEvent, event: EvictionRejected | EvictionFailed) -> None:
        pod_record = self.pods.get(event.pod_uid)
        if pod_record is not None and record.cause is not None and record.cause.context == "scheduling":
            pod_record.note_outcome(
                eviction_refused_seq=max(pod_record.eviction_refused_seq, record.cause.seq),
                eviction_refused_at=record.seq,
            )
            if self.dirty is not None:
                self.dirty.pods[event.pod_uid] = None

    def _fields_desired(self, record: RecordedEvent, event: FieldsDesired) -> None:
        if event.resource == EXPLANATIONS:
            forget_old(self.explanation_answers, record.at_ns)
            self.explanation_answers[event.name] = LastAnswer(event.uid, record.at_ns, digest_of(event.patch["status"]))
        self.writes.note(event, record.seq)
        if event.resource == RESERVATIONS:
            self.reservation_statuses[event.name] = LastStatus(event.uid, status_digest(event.patch["status"]))
        if event.resource == POD_GROUPS:
            self.pod_group_statuses[event.name] = LastStatus(event.uid, status_digest(event.patch["status"]))
        if event.resource == VOLUMES:
            self.chosen[event.uid] = chosen_volume(event)
        if event.resource == "pods" and event.fields == PRE_ALLOCATION_FIELDS:
            self._taken_over(record, event)

    def _taken_over(self, record: RecordedEvent, event: FieldsDesired) -> None:
        """Notes the Reservation that takes a running pod over. It may be gone by now: what the pod has does not change."""
        pod_record = self._seen_by_cycle(event.uid, event, record.cause)
        if pod_record is not None:
            pod_record.note_decision(pre_allocated=event.patch["metadata"]["annotations"][RESERVATION_ALLOCATED])
            if self.dirty is not None:
                self.dirty.pods[pod_record.uid] = None

    def _pod_unschedulable(self, record: RecordedEvent, event: PodUnschedulable) -> None:
        # A pod that no cycle tries may have been observed after the last one.
        pod_record = self._seen_by_cycle(event.pod_uid, event, record.cause)
        if pod_record is not None:
            pod_record.note_decision(condition_code=event.code)

    def _reservation_unschedulable(self, _: RecordedEvent, event: ReservationUnschedulable) -> None:
        pod_record = self._seen_by_cycle(event.reservation_uid, event)
        if pod_record is not None:
            pod_record.note_decision(condition_code=event.code, condition_message=event.message)

    def _placement_compared(self, record: RecordedEvent, event: PlacementCompared) -> None:
        binding = record.cause.seq if record.cause else 0
        pod_record = self.pods.get(event.pod_uid)
        if pod_record is None:
            if self.positions.get("cluster", 0) >= binding:
                return  # the pod was bound before that position and has been deleted since
            pod_record = self._await(event.pod_uid, binding)
        pod_record.note_decision(compared=True)

    def _config_applied(self, record: RecordedEvent, event: ConfigApplied) -> None:
        self.config_seq = record.seq
        self.config_source, self.config_text, self.config_digest = event.source, event.text, event.digest
        self.config_settings = dict(sorted(event.settings.items()))
        self.refused_digest = ""

    def _config_rejected(self, _: RecordedEvent, event: ConfigRejected) -> None:
        self.refused_digest = event.digest

    def _seen_by_cycle(self, uid: str, event: Event, cause: Cause | None = None) -> PodRecord | None:
        """Returns the pod that a decision of the last cycle, or of an extender call after an observation, is about;
        None when it is deleted.

        The decision had read the pod. If it is absent although the fold has read as far, it was deleted for good; if it
        was first observed later, it is a new pod of the same uid.
        """
        # Where the decision was carried forward, its cycle may be gone: the copy has the positions itself.
        saw = self.cycle_saw if event.seen is None else event.seen.get("cluster", 0)
        if cause is not None and cause.context == "cluster" and cause.seq > saw:
            saw = cause.seq
        pod_record = self.pods.get(uid)
        if pod_record is None:
            if self.positions.get("cluster", 0) >= saw:
                return None
            pod_record = self._await(uid, saw)
        elif (since := pod_record.since) > saw and since > self.cluster_begins:
            return None
        return pod_record

    def _await(self, uid: str, saw: int) -> PodRecord:
        pod_record = self.pods[uid] = PodRecord(uid)
        self.awaited[uid] = saw
        return pod_record

    folds: ClassVar[dict[type[Event], Callable[[Any, RecordedEvent, Any], None]]] = {
        CycleDecided: _cycle_decided,
        GangPlaced: _gang_placed,
        UnitStartPlanned: _unit_start_planned,
        PodPlaced: _pod_placed,
        PlacementReserved: _placement_reserved,
        PlacementReleased: _placement_released,
        PodUnschedulable: _pod_unschedulable,
        ReservationUnschedulable: _reservation_unschedulable,
        FieldsDesired: _fields_desired,
        PodNominated: _pod_nominated,
        EvictionRequested: _eviction_requested,
        EvictionRejected: _eviction_refused,
        EvictionFailed: _eviction_refused,
        PlacementCompared: _placement_compared,
        ConfigApplied: _config_applied,
        ConfigRejected: _config_rejected,
    }


def _reasons(evaluated: ClassEvaluated) -> tuple[PluginReason, ...]:
    return tuple(dict.fromkeys((rejected.plugin, rejected.code) for rejected in evaluated.rejected))
