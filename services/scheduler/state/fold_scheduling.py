"""The half of the fold that is of our own log, `scheduling`."""

from collections.abc import Callable
from typing import Any, ClassVar

from services.scheduler.cache.volume_catalog import VOLUMES
from services.scheduler.state.explanation_requests import QUESTIONS, Answered, digest_of, forget_old
from services.scheduler.state.pod_class import allotments
from services.scheduler.state.pod_record import PluginReason, PodFacts
from services.scheduler.state.state_fields import KnownFacts
from shared.events import Cause, Event, RecordedEvent
from shared.events.cluster import (
    EvictionFailed,
    EvictionRefused,
)
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.log import ConfigApplied, ConfigRejected
from shared.events.scheduling import (
    ClassEvaluated,
    CycleDecided,
    PlacementCompared,
    PodNominated,
    PodPlaced,
    PodUnschedulable,
)


class DecidedFacts(KnownFacts):
    """Folds what we decided, and what we took for our configuration."""

    def _cycle_decided(self, record: RecordedEvent, event: CycleDecided) -> None:
        self._hear_clock(record.at_ns)
        self.cycle = event.cycle
        self.cycle_saw = (event.seen or {}).get("cluster", 0)
        self.cycle_ns = event.now_ns or 0
        saw_reports = {name: seq for name, seq in (event.seen or {}).items() if name.startswith("metrics-")}
        saw_quota = max((event.seen or {}).get("quota", 0), event.charged_at)
        reasons: dict[int, tuple[PluginReason, ...]] = {}
        for outcome in event.pods:
            if outcome.node or (facts := self._seen_by_round(outcome.pod_uid)) is None:
                continue
            if outcome.class_index not in reasons:
                reasons[outcome.class_index] = _reasons(event.classes[outcome.class_index])
            facts.attempts += 1
            facts.tried_ns = self.cycle_ns
            facts.tried_seq = record.seq
            facts.saw = self.cycle_saw
            facts.saw_quota = saw_quota
            facts.saw_reports = saw_reports
            facts.reasons = reasons[outcome.class_index]
            if self.touched is not None:
                self.touched.pods[facts.uid] = None

    def _pod_placed(self, record: RecordedEvent, event: PodPlaced) -> None:
        facts = self._seen_by_round(event.pod_uid)
        if facts is None:
            return
        facts.placed_node = event.node
        facts.placed_seq = record.seq
        facts.placed_ns = self.cycle_ns
        facts.placed_allotted = allotments(event.annotations)
        facts.attempts = 0
        facts.nominated = ""
        if self.touched is not None:
            self.touched.pods[event.pod_uid] = None

    def _pod_nominated(self, _: RecordedEvent, event: PodNominated) -> None:
        facts = self._seen_by_round(event.pod_uid)
        if facts is not None:
            facts.nominated = event.node
            if self.touched is not None:
                self.touched.pods[event.pod_uid] = None

    def _eviction_asked(self, record: RecordedEvent, event: EvictionRequested) -> None:
        facts = self._seen_by_round(event.pod_uid, record.cause)
        if facts is not None:
            facts.asked_seq = record.seq
            if self.touched is not None:
                self.touched.pods[event.pod_uid] = None

    def _eviction_refused(self, record: RecordedEvent, event: EvictionRefused | EvictionFailed) -> None:
        facts = self.pods.get(event.pod_uid)
        if facts is not None and record.cause is not None and record.cause.context == "scheduling":
            facts.stayed_seq = max(facts.stayed_seq, record.cause.seq)
            facts.stayed_at = record.seq
            if self.touched is not None:
                self.touched.pods[event.pod_uid] = None

    def _fields_decided(self, record: RecordedEvent, event: FieldsDesired) -> None:
        if event.resource == QUESTIONS:
            forget_old(self.answered, record.at_ns)
            self.answered[event.name] = Answered(event.uid, record.at_ns, digest_of(event.patch["status"]))
        if event.resource == VOLUMES:
            reference = event.patch["spec"]["claimRef"]
            self.chosen[event.name] = f"{reference['namespace']}/{reference['name']}"

    def _pod_unschedulable(self, _: RecordedEvent, event: PodUnschedulable) -> None:
        facts = self._seen_by_round(event.pod_uid)
        if facts is not None:
            facts.told = event.code

    def _placement_compared(self, record: RecordedEvent, event: PlacementCompared) -> None:
        binding = record.cause.seq if record.cause else 0
        facts = self.pods.get(event.pod_uid)
        if facts is None:
            if self.positions.get("cluster", 0) >= binding:
                return  # it was bound before, and is gone
            facts = self.pods[event.pod_uid] = PodFacts(event.pod_uid)
        facts.compared = True

    def _config_taken(self, record: RecordedEvent, event: ConfigApplied) -> None:
        self.config_seq = record.seq
        self.config_source, self.config_text, self.config_digest = event.source, event.text, event.digest
        self.refused_digest = ""

    def _config_refused(self, _: RecordedEvent, event: ConfigRejected) -> None:
        self.refused_digest = event.digest

    def _seen_by_round(self, uid: str, cause: Cause | None = None) -> PodFacts | None:
        """The pod that the last cycle meant, or, where the cause is an observation, who decided after it; None when it is gone.

        The pod was seen then: absent although we have read as far means gone for good, and one that was first observed
        later is another life of the same uid.
        """
        saw = max(self.cycle_saw, cause.seq if cause is not None and cause.context == "cluster" else 0)
        facts = self.pods.get(uid)
        if facts is None:
            if self.positions.get("cluster", 0) >= saw:
                return None
            facts = self.pods[uid] = PodFacts(uid)
        elif facts.since > saw:
            return None
        return facts

    folds: ClassVar[dict[type[Event], Callable[[Any, RecordedEvent, Any], None]]] = {
        CycleDecided: _cycle_decided,
        PodPlaced: _pod_placed,
        PodUnschedulable: _pod_unschedulable,
        FieldsDesired: _fields_decided,
        PodNominated: _pod_nominated,
        EvictionRequested: _eviction_asked,
        EvictionRefused: _eviction_refused,
        EvictionFailed: _eviction_refused,
        PlacementCompared: _placement_compared,
        ConfigApplied: _config_taken,
        ConfigRejected: _config_refused,
    }


def _reasons(judged: ClassEvaluated) -> tuple[PluginReason, ...]:
    return tuple(dict.fromkeys((rejected.plugin, rejected.code) for rejected in judged.rejected))
