"""Why a pod is where it is, or nowhere: told from its own events alone, for `koord why pod`.

What is needed stands in the events of the decision: CycleDecided holds how the pod's class was judged, PodPlaced and
PodUnschedulable what came of it, the gateway's outcomes how it ended. Nothing is computed anew.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec

from services.scheduler.plugins.registry import text
from services.scheduler.quota.describe import describe
from services.scheduler.state.pod_class import SCHEDULER_NAME
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
from shared.events.scheduling import (
    ClassEvaluated,
    CycleDecided,
    PlacementCompared,
    PodNominated,
    PodPlaced,
    PodUnschedulable,
)
from shared.kube.instants import instant_text


class Step(msgspec.Struct, frozen=True):
    """One event of the pod's explainer.

    Attributes:
        event: `context/seq`.
        at_ns: when it was appended.
    """

    event: str
    at_ns: int
    type: str
    text: str


class Refusal(msgspec.Struct, frozen=True):
    """How many nodes one plugin refused for one reason, and the reason in words."""

    plugin: str
    code: str
    detail: str
    nodes: int
    text: str


class Choice(msgspec.Struct, frozen=True):
    """One of the best nodes: its total and each plugin's weighted part."""

    node: str
    score: int
    parts: dict[str, int]


class Evaluation(msgspec.Struct, frozen=True):
    """The cycle that decided, and how it judged the nodes; or how we judged them for a pod that another scheduler placed.

    Attributes:
        cycle: its number; 0 where another scheduler decided.
        event: `context/seq` of its CycleDecided.
        now_ns: the instant it was decided at; seen: the positions it rests on; config: digest of the configuration.
        equals_before: pods of the same class placed before this one in the cycle: the nodes were judged before the first
            of them.
        node: the node chosen, empty when none was.
        score: its total when this pod took it; `best` is as of the first pod of the class.
    """

    cycle: int
    event: str
    now_ns: int
    seen: dict[str, int]
    config: str
    equals_before: int
    node: str
    score: int
    nodes: int
    feasible: int
    rejected: tuple[Refusal, ...]
    best: tuple[Choice, ...]


class Explanation(msgspec.Struct, frozen=True):
    """What became of a pod.

    Attributes:
        status: `bound`, `placed`, `nominated`, `unschedulable`, `refused`, `withheld`, `waiting`, `gated`, `ended`, `gone` or `unknown`.
        node: where it is, or is to be.
        summary: one sentence.
        evaluation: of its last placement or refusal, if its cycle is among the events.
        steps: its events in the order in which they were appended.
    """

    pod: str
    pod_uid: str
    status: str
    node: str
    summary: str
    evaluation: Evaluation | None
    steps: tuple[Step, ...]


def explain(records: Iterable[RecordedEvent], pod_uid: str = "", language: str = "en") -> Explanation:
    """Explain a pod from its events and the cycles they name, in any order; other events are passed over.

    Args:
        records: events with the pod's key, and the CycleDecided that its PodPlaced and PodUnschedulable name.
        pod_uid: which pod of the name; the one observed or decided last when not given.
        language: of the reasons, `en` or `zh`.
    """
    ordered = _in_order(records)
    uid = pod_uid or next(
        (uid for record in reversed(ordered) if (uid := str(getattr(record.event, "pod_uid", "")))), ""
    )
    own = [record for record in ordered if uid and getattr(record.event, "pod_uid", None) == uid]
    cycles = {record.event.cycle: record for record in ordered if isinstance(record.event, CycleDecided)}
    explainer = _Explainer(language)
    for record in own:
        explainer.tell(record)
    decided = next((r.event for r in reversed(own) if isinstance(r.event, PodPlaced | PodUnschedulable)), None)
    evaluation = None
    if decided is not None and decided.cycle in cycles:
        evaluation = _cycle_evaluation(cycles[decided.cycle], decided, language)
    elif compared := next((r for r in reversed(own) if isinstance(r.event, PlacementCompared)), None):
        evaluation = _compared(compared, language)
    return Explanation(
        pod=explainer.pod,
        pod_uid=uid,
        status=explainer.status,
        node=explainer.node,
        summary=explainer.summary,
        evaluation=evaluation,
        steps=tuple(explainer.steps),
    )


def render(explanation: Explanation) -> str:
    """The explanation as plain text, for a terminal without colours or a log."""
    lines = [f"{explanation.pod or 'unknown pod'} ({explanation.pod_uid or 'no uid'}): {explanation.summary}"]
    if evaluation := explanation.evaluation:
        lines += ["", *_evaluation_lines(evaluation)]
    lines += ["", *(f"{instant_text(step.at_ns):<27}  {step.event:<22} {step.text}" for step in explanation.steps)]
    return "\n".join(lines) + "\n"


def _in_order(records: Iterable[RecordedEvent]) -> list[RecordedEvent]:
    """One order of several contexts: each in its own, causes before what they led to, else by time.

    Clocks of writers may differ by minutes, so time alone would tell a binding before its placement.
    """
    logs: dict[str, list[RecordedEvent]] = {}
    for record in sorted(records, key=lambda record: record.seq):
        logs.setdefault(record.context, []).append(record)
    upto = dict.fromkeys(logs, 0)  # context -> how many of its records are told
    ordered: list[RecordedEvent] = []
    while heads := [(log[upto[name]], name) for name, log in sorted(logs.items()) if upto[name] < len(log)]:
        free = [(head, name) for head, name in heads if not _awaits(head, logs, upto)] or heads
        record, name = min(free, key=lambda entry: entry[0].at_ns)
        ordered.append(record)
        upto[name] += 1
    return ordered


def _awaits(record: RecordedEvent, logs: dict[str, list[RecordedEvent]], upto: dict[str, int]) -> bool:
    """Whether something that the record rests on (its cause, what its cycle saw) is yet to be told."""
    rests_on = dict(record.event.seen or {})
    if record.cause is not None:
        rests_on[record.cause.context] = max(record.cause.seq, rests_on.get(record.cause.context, 0))
    return any(
        context != record.context and upto[context] < len(log) and log[upto[context]].seq <= rests_on.get(context, 0)
        for context, log in logs.items()
    )


def _evaluation_lines(evaluation: Evaluation) -> list[str]:
    passed = f"{evaluation.feasible} of {evaluation.nodes} nodes passed every filter"
    what = f"cycle {evaluation.cycle}" if evaluation.cycle else "compared"
    lines = [f"{what} ({evaluation.event}) at {instant_text(evaluation.now_ns)}: {passed}"]
    if evaluation.equals_before:
        lines.append(
            f"  judged before {evaluation.equals_before} equal pods of the same cycle, which took their nodes first"
        )
    lines += [
        f"  {refusal.nodes:>6}  {refusal.plugin}: {refusal.text}{_detail(refusal)}" for refusal in evaluation.rejected
    ]
    for choice in evaluation.best:
        parts = ", ".join(f"{plugin} {part}" for plugin, part in choice.parts.items())
        mark = "->" if choice.node == evaluation.node else "  "
        lines.append(f"  {mark} {choice.node}: {choice.score} ({parts})")
    if evaluation.node and all(choice.node != evaluation.node for choice in evaluation.best):
        lines.append(f"  -> {evaluation.node}: {evaluation.score} when this pod's turn came")
    return lines


def _detail(refusal: Refusal) -> str:
    return f" ({refusal.detail})" if refusal.detail and refusal.detail not in refusal.text else ""


def _cycle_evaluation(record: RecordedEvent, decided: PodPlaced | PodUnschedulable, language: str) -> Evaluation | None:
    cycle = record.event
    assert isinstance(cycle, CycleDecided), "cycles holds nothing else"
    place = next((i for i, outcome in enumerate(cycle.pods) if outcome.pod_uid == decided.pod_uid), None)
    if place is None:
        return None
    outcome = cycle.pods[place]
    judged: ClassEvaluated = cycle.classes[outcome.class_index]
    return Evaluation(
        cycle=cycle.cycle,
        event=f"{record.context}/{record.seq}",
        now_ns=cycle.now_ns or 0,
        seen=cycle.seen or {},
        config=cycle.config or "",
        equals_before=sum(
            1 for before in cycle.pods[:place] if before.class_index == outcome.class_index and before.node
        ),
        node=outcome.node,
        score=decided.score if isinstance(decided, PodPlaced) else 0,
        nodes=judged.nodes,
        feasible=judged.feasible,
        rejected=_rejected(judged, language),
        best=_best(judged),
    )


def _compared(record: RecordedEvent, language: str) -> Evaluation:
    found = record.event
    assert isinstance(found, PlacementCompared), "chosen because it is"
    return Evaluation(
        cycle=0,
        event=f"{record.context}/{record.seq}",
        now_ns=found.as_of_ns,
        seen=found.as_of,
        config=found.config or "",
        equals_before=0,
        node=found.our_node,
        score=found.our_score,
        nodes=found.evaluation.nodes,
        feasible=found.evaluation.feasible,
        rejected=_rejected(found.evaluation, language),
        best=_best(found.evaluation),
    )


def _rejected(judged: ClassEvaluated, language: str) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(r.plugin, r.code, r.detail, r.nodes, text(r.code, r.detail, language)) for r in judged.rejected
    )


def _best(judged: ClassEvaluated) -> tuple[Choice, ...]:
    return tuple(Choice(best.node, best.score, best.plugin_scores) for best in judged.best)


class _Explainer:
    """Tells a pod's events one after the other, and knows how it stands after the last."""

    def __init__(self, language: str) -> None:
        self._language = language
        self.pod = ""
        self.status = "unknown"
        self.node = ""
        self.summary = "no event speaks of this pod"
        self.steps: list[Step] = []

    def tell(self, record: RecordedEvent) -> None:
        event = record.event
        self.pod = str(getattr(event, "pod", "")) or self.pod
        teller = self._describers.get(type(event))
        said = teller(self, event) if teller else describe(event) or event.type_name()
        self.steps.append(Step(f"{record.context}/{record.seq}", record.at_ns, event.type_name(), said))

    def _stand(self, status: str, summary: str) -> str:
        self.status, self.summary = status, summary
        return summary

    def _observed(self, event: PodObserved) -> str:
        pod = event.object
        if pod.status.phase in ("Succeeded", "Failed"):
            return self._stand("ended", f"it ended: {pod.status.phase}")
        if pod.metadata.deletion_timestamp is not None:
            return self._stand("gone", f"{text('Deleting', language=self._language)}")
        if pod.spec.node_name:
            self.node = pod.spec.node_name
            return self._stand("bound", f"it is on {self.node}, {pod.status.phase or 'without a phase'}")
        if self.status in ("placed", "nominated", "unschedulable", "refused", "withheld"):
            return "observed: a kept field changed"
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            return self._stand("gated", f"{text('SchedulingGated', language=self._language)}: {gates}")
        wanted = (pod.metadata.labels or {}).get(SCHEDULER_NAME) or pod.spec.scheduler_name
        return self._stand("waiting", f"it waits for scheduler {wanted}")

    def _placed(self, event: PodPlaced) -> str:
        self.node = event.node
        return self._stand("placed", f"cycle {event.cycle} placed it on {event.node}; the binding is under way")

    def _unschedulable(self, event: PodUnschedulable) -> str:
        self.node = ""
        return self._stand("unschedulable", f"cycle {event.cycle} found no node: {event.message}")

    def _nominated(self, event: PodNominated) -> str:
        if not event.node:
            self.node = ""
            return self._stand(
                "unschedulable", "the room that was made for it goes to a pod of higher priority; it waits on"
            )
        self.node = event.node
        pairs = zip(event.victim_pods, event.victim_priorities, strict=True)
        victims = ", ".join(f"{pod} (priority {priority})" for pod, priority in pairs) or ", ".join(event.victims)
        budgets = (
            f"{event.violations} of them beyond their disruption budgets"
            + (f" ({', '.join(event.budgets)})" if event.budgets else "")
            if event.violations
            else "within every disruption budget"
        )
        if not event.victims:
            return self._stand(
                "nominated",
                f"cycle {event.cycle} keeps room for it on {event.node}: pods that are leaving already free enough; nobody else is asked "
                "to go",
            )
        if event.quota:
            return self._stand(
                "nominated",
                f"cycle {event.cycle} asked pods of quota {event.quota} to make room in it: {victims}; {budgets}; it is to go to {event.node}",
            )
        others = f"; of {event.candidates} nodes where that helps, this one loses least" if event.candidates > 1 else ""
        return self._stand(
            "nominated",
            f"cycle {event.cycle} asked pods on {event.node} to make room for it: {victims}; {budgets}{others}",
        )

    def _is_evicted(self, event: EvictionRequested) -> str:
        return f"it is asked to go: {event.reason}"

    def _stays(self, event: EvictionRejected | EvictionFailed) -> str:
        return f"it stays: {event.reason}"

    def _bound(self, event: PodBound) -> str:
        self.node = event.node
        return self._stand("bound", f"it is bound to {event.node}")

    def _refused(self, event: BindRejected | BindFailed) -> str:
        self.node = ""
        return self._stand("refused", f"the binding failed and it is tried again: {event.reason}")

    def _withheld(self, _: BindSuppressed) -> str:
        return self._stand("withheld", text("Withheld", language=self._language))

    def _compared(self, event: PlacementCompared) -> str:
        self.node = event.their_node
        result = f"{event.scheduler} bound it to {event.their_node}"
        if event.our_node == event.their_node:
            return self._stand("bound", f"{result}, as we would have")
        ours = (
            f"we would have chosen {event.our_node} ({event.our_score})"
            if event.our_node
            else "none passed our filters"
        )
        if event.their_rejections:
            why = ", ".join(text(one.code, one.detail, self._language) for one in event.their_rejections)
            return self._stand("bound", f"{result}, which we refuse: {why}; {ours}")
        return self._stand("bound", f"{result} ({event.their_score} by our scores); {ours}")

    def _missing(self, event: MissingPermission) -> str:
        return self._stand("refused", f"the gateway may not do this; allow it to {event.rule}")

    def _deleted(self, _: PodDeleted) -> str:
        return self._stand("gone", "it was deleted")

    def _evicted(self, _: PodEvicted) -> str:
        return self._stand("gone", "it was evicted")

    _describers: ClassVar[dict[type[Event], Callable[[Any, Any], str]]] = {
        PodObserved: _observed,
        PodPlaced: _placed,
        PodUnschedulable: _unschedulable,
        PodNominated: _nominated,
        EvictionRequested: _is_evicted,
        EvictionRejected: _stays,
        EvictionFailed: _stays,
        PodBound: _bound,
        BindRejected: _refused,
        BindFailed: _refused,
        BindSuppressed: _withheld,
        PlacementCompared: _compared,
        MissingPermission: _missing,
        PodDeleted: _deleted,
        PodEvicted: _evicted,
    }
