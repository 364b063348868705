"""Describes a pod's events one by one, and the state of its placement after the last of them."""

from collections.abc import Callable
from typing import Any, ClassVar

from services.scheduler.explain.changed_fields import changed_fields
from services.scheduler.explain.explanation_text import Step
from services.scheduler.explain.quota_ledger_event_sentences import describe
from services.scheduler.plugins.registry import text
from services.scheduler.state.ignored_pod_settings import ignored_pod_settings
from services.scheduler.state.pod_equivalence_class import SCHEDULER_NAME
from shared.domain.gang import POD_GROUP_LABEL
from shared.domain.ignored_gang_annotations import ignored_of_pod
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    BindSuppressed,
    EvictionFailed,
    EvictionRejected,
    MissingPermission,
    PodBound,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested
from shared.events.migration import MigrationEvictionDecided
from shared.events.quota import PodAttached
from shared.events.scheduling import (
    PlacementCompared,
    PlacementReleased,
    PlacementReserved,
    PodNominated,
    PodPlaced,
    PodUnschedulable,
)
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.pod import ENDED_PHASES, Pod

_DECIDED = frozenset(("placed", "reserved", "nominated", "unschedulable", "rejected", "suppressed"))
"""Statuses that an observation without a node does not change."""


_PASSES = {
    "OtherNode": "whose start is planned on other nodes",
    "EndsBefore": "whose planned start is after the deadline of this pod",
    "FitsBeside": "whose pods fit the node beside this one",
}
"""Why a pod passes a unit with a planned start."""


class PodHistory:
    """The events of one pod, in order.

    Attributes:
        pod: `namespace/name`; status, node, summary: as in Explanation, after the events so far.
        refused: the refusal that the summary describes; None for any other summary.
    """

    def __init__(self, language: str) -> None:
        self._language = language
        self.pod = ""
        self.status = "unknown"
        self.node = ""
        self.summary = "the log has no event about this pod"
        self.steps: list[Step] = []
        self.refused: PodUnschedulable | None = None
        self._observed_pod: Pod | None = None
        self._was_evicted, self._eviction = False, ""  # the newest reason for which its eviction was requested
        self._is_settled = False  # observed on a node, terminating, ended or deleted: no decision changes that

    def add(self, record: RecordedEvent) -> None:
        """Adds the next event; an observation in which nothing changed that anybody reads is left out."""
        event = record.event
        self.pod = str(getattr(event, "pod", "")) or self.pod
        description = self._descriptions.get(type(event))
        step = description(self, event) if description else describe(event) or event.type_name()
        if not step:
            return
        self.steps.append(Step(f"{record.context}/{record.seq}", record.at_ns, event.type_name(), step))

    def ignored(self) -> tuple[str, ...]:
        """Returns the labels and annotations of its newest object that have no effect."""
        if self._observed_pod is None:
            return ()
        metadata = self._observed_pod.metadata
        found = [*ignored_pod_settings(metadata.labels, metadata.annotations)]
        if not (metadata.labels or {}).get(POD_GROUP_LABEL):  # else those of the PodGroup count
            found += ignored_of_pod(metadata.labels, metadata.annotations)
        return tuple(found)

    def _set(self, status: str, summary: str) -> str:
        self.status, self.summary, self.refused = status, summary, None
        return summary

    def _settle(self, status: str, summary: str) -> str:
        """Sets a state that the API server has shown."""
        self._is_settled = True
        return self._set(status, summary)

    def _decide(self, status: str, summary: str, node: str = "") -> str:
        """Sets what a decision or its outcome changes: nothing once the pod is settled. The outcome of a binding may be
        recorded after an observation of the pod on its node, and a rejection after its deletion.
        """
        if self._is_settled:
            return summary
        self.node = node
        return self._set(status, summary)

    def _observed(self, event: PodObserved) -> str:
        """Describes an observation: a new state, else the fields that differ from the one before."""
        before, self._observed_pod = self._observed_pod, event.object
        summary = self.summary
        found = self._state_of(event.object)
        if found and found != summary:
            return found
        changed = "" if before is None else changed_fields(before, event.object)
        return f"observed: {changed} changed" if changed else ""

    def _state_of(self, pod: Pod) -> str:
        """Sets the state that an observation shows; empty where it shows none that decisions did not make."""
        if pod.status.phase in ENDED_PHASES:
            return self._settle("ended", f"it ended: {pod.status.phase}")
        if pod.metadata.deletion_timestamp is not None:
            return self._settle("gone", f"{text('Deleting', language=self._language)}")
        if pod.spec.node_name:
            self.node = pod.spec.node_name
            return self._settle("bound", f"it is on {self.node}, {pod.status.phase or 'without a phase'}")
        if self.status in _DECIDED:
            return ""
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            return self._set("gated", f"{text('SchedulingGated', language=self._language)}: {gates}")
        scheduler = (pod.metadata.labels or {}).get(SCHEDULER_NAME) or pod.spec.scheduler_name
        return self._set("waiting", f"it waits for scheduler {scheduler}")

    def _attached(self, event: PodAttached) -> str:
        """Describes the quota of a pod, and the label that names another one: the pod counts in none that it names."""
        belongs, pod = describe(event), self._observed_pod
        label = (pod.metadata.labels or {}).get(QUOTA_NAME, "") if pod is not None else ""
        return (
            f"{belongs}; its label names {label}, which is not in force" if label not in ("", event.quota) else belongs
        )

    def _placed(self, event: PodPlaced) -> str:
        passed = "".join(f"; it passes {unit}, {_PASSES.get(why, why)}" for unit, why in event.passes.items())
        placed = f"cycle {event.cycle} placed it on {event.node}; the binding is under way{passed}"
        return self._decide("placed", placed, event.node)

    def _reserved(self, event: PlacementReserved) -> str:
        waits_for = {
            "unit": f"the other pods of {event.unit or 'its unit'} have no node yet",
            "volumes": "its volumes are being prepared",
            "owners": "pods that match its owners may use it",
        }.get(event.waits_for, event.waits_for)
        held = f"cycle {event.cycle} holds capacity for it on {event.node}: {waits_for}"
        return self._decide("reserved", held, event.node)

    def _released(self, event: PlacementReleased) -> str:
        return self._decide(
            "waiting", f"the capacity held for it on {event.node} is free again: {event.reason}; it waits"
        )

    def _unschedulable(self, event: PodUnschedulable) -> str:
        if not event.attempt:
            return self._decide("unschedulable", f"no cycle tries it: {event.message}")
        refused = self._decide("unschedulable", f"cycle {event.cycle} found no node: {event.message}")
        if not self._is_settled:
            self.refused = event
        return refused

    def _nominated(self, event: PodNominated) -> str:
        if not event.node:
            why = event.reason or "the capacity kept for it goes to a pod of higher priority"
            return self._decide("unschedulable", f"its nomination ended: {why}; it waits")
        if not event.victims:
            kept = f"cycle {event.cycle} keeps capacity for it on {event.node}: pods that are terminating free enough"
            return self._decide("nominated", f"{kept}; no other pod is evicted", event.node)
        pairs = zip(event.victim_pods, event.victim_priorities, strict=True)
        victims = ", ".join(f"{pod} (priority {priority})" for pod, priority in pairs) or ", ".join(event.victims)
        budgets = _budgets(event)
        if event.quota:
            evicted = f"cycle {event.cycle} evicts pods of quota {event.quota} for it: {victims}; {budgets}"
            return self._decide("nominated", f"{evicted}; it is nominated for {event.node}", event.node)
        others = f"; of {event.candidates} nodes where that helps, this one loses least" if event.candidates > 1 else ""
        evicted = f"cycle {event.cycle} evicts pods on {event.node} for it: {victims}; {budgets}{others}"
        return self._decide("nominated", evicted, event.node)

    def _eviction_requested(self, event: EvictionRequested) -> str:
        self._eviction = event.reason
        return f"its eviction is requested: {event.reason}"

    def _move_decided(self, event: MigrationEvictionDecided) -> str:
        to = f" to {event.destination}" if event.destination else ""
        return f"PodMigrationJob {event.job} moves it{to}: {event.method} from {event.node}: {event.reason}"

    def _not_evicted(self, event: EvictionRejected | EvictionFailed) -> str:
        return f"it is not evicted: {event.reason}"

    def _bound(self, event: PodBound) -> str:
        return self._decide("bound", f"it is bound to {event.node}", event.node)

    def _bind_rejected(self, event: BindRejected | BindFailed) -> str:
        again = "" if self._is_settled else " and it is tried again"
        return self._decide("rejected", f"the binding failed{again}: {event.reason}")

    def _bind_suppressed(self, _: BindSuppressed) -> str:
        return self._decide("suppressed", text("BindingSuppressed", language=self._language), self.node)

    def _compared(self, event: PlacementCompared) -> str:
        bound = f"{event.scheduler} bound it to {event.their_node}"
        if event.our_node == event.their_node:
            return self._decide("bound", f"{bound}, as we would have", event.their_node)
        ours = "none passed our filters"
        if event.our_node:
            ours = f"we would have chosen {event.our_node} ({event.our_score})"
        if event.their_rejections:
            reasons = ", ".join(text(one.code, one.detail, self._language) for one in event.their_rejections)
            return self._decide("bound", f"{bound}, which we refuse: {reasons}; {ours}", event.their_node)
        return self._decide("bound", f"{bound} ({event.their_score} by our scores); {ours}", event.their_node)

    def _missing_permission(self, event: MissingPermission) -> str:
        return self._decide("rejected", f"the gateway may not do this; allow it to {event.rule}", self.node)

    def _deleted(self, _: PodDeleted) -> str:
        return self._settle("gone", f"{self._evicted_why()}, and is gone" if self._was_evicted else "it was deleted")

    def _evicted(self, _: PodEvicted) -> str:
        self._was_evicted = True
        return self._settle("gone", self._evicted_why())

    def _evicted_why(self) -> str:
        return f"it was evicted: {self._eviction}" if self._eviction else "it was evicted"

    _descriptions: ClassVar[dict[type[Event], Callable[[Any, Any], str]]] = {
        PodObserved: _observed,
        PodAttached: _attached,
        PodPlaced: _placed,
        PlacementReserved: _reserved,
        PlacementReleased: _released,
        PodUnschedulable: _unschedulable,
        PodNominated: _nominated,
        EvictionRequested: _eviction_requested,
        MigrationEvictionDecided: _move_decided,
        EvictionRejected: _not_evicted,
        EvictionFailed: _not_evicted,
        PodBound: _bound,
        BindRejected: _bind_rejected,
        BindFailed: _bind_rejected,
        BindSuppressed: _bind_suppressed,
        PlacementCompared: _compared,
        MissingPermission: _missing_permission,
        PodDeleted: _deleted,
        PodEvicted: _evicted,
    }


def _budgets(event: PodNominated) -> str:
    if not event.violations:
        return "within every disruption budget"
    names = f" ({', '.join(event.budgets)})" if event.budgets else ""
    return f"{event.violations} of them beyond their disruption budgets{names}"
