"""Explains where a pod is placed, or why it waits, from its own events alone: for `koord why pod`.

Nothing is computed again. CycleDecided holds the evaluation of the pod's class, PodPlaced and PodUnschedulable its
result, and the gateway's outcomes the end of the binding.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from services.scheduler.explain.explanation_text import Evaluation, Explanation, Rejection, ScoredNode
from services.scheduler.explain.pod_history import PodHistory
from services.scheduler.framework.reasons import summary
from services.scheduler.plugins.registry import REGISTRY, text
from shared.domain.device_requests import SHARED
from shared.events import RecordedEvent
from shared.events.scheduling import ClassEvaluated, CycleDecided, PlacementCompared, PodPlaced, PodUnschedulable


def explain(records: Iterable[RecordedEvent], pod_uid: str = "", language: str = "en") -> Explanation:
    """Explains a pod from its events and the cycles that they name, in any order; other events are passed over.

    Args:
        records: events with the pod's key, the CycleDecided that its PodPlaced and PodUnschedulable name, and that of
            its newest attempt.
        pod_uid: which pod of the name; without it, the one that was observed or decided last.
        language: of the reasons, `en` or `zh`.
    """
    ordered = _in_order(records)
    uid = pod_uid or next(
        (uid for record in reversed(ordered) if (uid := str(getattr(record.event, "pod_uid", "")))), ""
    )
    own = [record for record in ordered if uid and getattr(record.event, "pod_uid", None) == uid]
    cycles = {record.event.cycle: record for record in ordered if isinstance(record.event, CycleDecided)}
    history = PodHistory(language)
    for record in own:
        history.add(record)
    decided = next((r.event for r in reversed(own) if isinstance(r.event, PodPlaced | PodUnschedulable)), None)
    evaluation = None
    # A later attempt with the same outcome has no event of its own: the newest cycle that took the pod is the last one.
    of_cycles = [record for number, record in sorted(cycles.items()) if decided and number >= decided.cycle]
    if decided is not None and (taken := [found for r in of_cycles if (found := _of_cycle(r, decided, language))]):
        evaluation = taken[-1]
    elif compared := next((r for r in reversed(own) if isinstance(r.event, PlacementCompared)), None):
        evaluation = _of_comparison(compared, language)
    return Explanation(
        pod=history.pod,
        pod_uid=uid,
        status=history.status,
        node=history.node,
        summary=_summary(history, cycles, evaluation),
        evaluation=evaluation,
        steps=tuple(history.steps),
        ignored=history.ignored(),
    )


def _in_order(records: Iterable[RecordedEvent]) -> list[RecordedEvent]:
    """Merges the contexts into one order: each in its own, causes before their effects, else by time.

    Clocks of writers may differ by minutes, so time alone would put a binding before its placement.
    """
    logs: dict[str, list[RecordedEvent]] = {}
    for record in sorted(records, key=lambda record: record.seq):
        logs.setdefault(record.context, []).append(record)
    merged = dict.fromkeys(logs, 0)  # context -> how many of its records are merged
    ordered: list[RecordedEvent] = []
    while heads := [(log[merged[name]], name) for name, log in sorted(logs.items()) if merged[name] < len(log)]:
        free = [(head, name) for head, name in heads if not _awaits(head, logs, merged)] or heads
        record, name = min(free, key=lambda entry: entry[0].at_ns)
        ordered.append(record)
        merged[name] += 1
    return ordered


def _awaits(record: RecordedEvent, logs: dict[str, list[RecordedEvent]], merged: dict[str, int]) -> bool:
    """Returns True while something that the record rests on (its cause, what its cycle saw) is not merged yet."""
    rests_on = dict(record.event.seen or {})
    if record.cause is not None:
        rests_on[record.cause.context] = max(record.cause.seq, rests_on.get(record.cause.context, 0))
    return any(
        context != record.context
        and merged[context] < len(log)
        and log[merged[context]].seq <= rests_on.get(context, 0)
        for context, log in logs.items()
    )


def _of_cycle(record: RecordedEvent, decided: PodPlaced | PodUnschedulable, language: str) -> Evaluation | None:
    cycle = record.event
    assert isinstance(cycle, CycleDecided), "cycles holds nothing else"
    place = next((i for i, outcome in enumerate(cycle.pods) if outcome.pod_uid == decided.pod_uid), None)
    if place is None:
        return None
    outcome = cycle.pods[place]
    evaluated: ClassEvaluated = cycle.classes[outcome.class_index]
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
        nodes=evaluated.nodes,
        feasible=evaluated.feasible,
        rejected=_rejected(evaluated, language),
        best=_best(evaluated, language),
    )


def _summary(history: PodHistory, cycles: Mapping[int, RecordedEvent], newest: Evaluation | None) -> str:
    """Returns the history's summary; for a pod that was refused again for the same reason, that of its newest cycle."""
    refused = history.refused
    if refused is None or newest is None or newest.cycle <= refused.cycle or newest.node:
        return history.summary
    message, first = refused.message, cycles.get(refused.cycle)
    evaluated = _of_cycle(first, refused, "en") if first is not None else None
    if evaluated is not None and message == _message(evaluated):
        message = _message(newest)
    return f"cycle {newest.cycle} found no node, as cycle {refused.cycle} did before: {message}"


def _message(evaluation: Evaluation) -> str:
    """Returns the message that a condition has after this evaluation, unless it is one of a unit or of a quota."""
    counts: Counter[str] = Counter()
    for one in evaluation.rejected:
        counts[text(one.code, one.detail)] += one.nodes
    return summary(evaluation.nodes, counts)


def _of_comparison(record: RecordedEvent, language: str) -> Evaluation:
    compared = record.event
    assert isinstance(compared, PlacementCompared), "chosen because it is"
    return Evaluation(
        cycle=0,
        event=f"{record.context}/{record.seq}",
        now_ns=compared.as_of_ns,
        seen=compared.as_of,
        config=compared.config or "",
        equals_before=0,
        node=compared.our_node,
        score=compared.our_score,
        nodes=compared.evaluation.nodes,
        feasible=compared.evaluation.feasible,
        rejected=_rejected(compared.evaluation, language),
        best=_best(compared.evaluation, language),
    )


def _rejected(evaluated: ClassEvaluated, language: str) -> tuple[Rejection, ...]:
    return tuple(
        Rejection(
            r.plugin, r.code, r.detail, r.nodes, text(r.code, r.detail, language), _REMEDIES.get((r.code, r.detail), "")
        )
        for r in evaluated.rejected
    )


_REMEDIES = {
    (
        "InsufficientResource",
        SHARED,
    ): f"the webhook adds {SHARED} to pods that request GPUs; nodes have it by the healthy"
    " GPUs of their Device, unless KOORD_SLO_CONTROLLER_SHARED_GPUS is false"
}
"""(code, detail) of a reason -> where its cause is, if that is another service."""


def _best(evaluated: ClassEvaluated, language: str) -> tuple[ScoredNode, ...]:
    return tuple(
        ScoredNode(best.node, best.score, best.plugin_scores, tuple(_remarks(best.plugin_scores, language)))
        for best in evaluated.best
    )


def _remarks(scores: Mapping[str, int], language: str) -> Iterator[str]:
    """Yields what scores of 0 mean, of plugins that have a text for it."""
    for name, score in scores.items():
        spec = REGISTRY.specs.get(name)
        if score == 0 and spec is not None and spec.zero_score is not None:
            yield spec.zero_score.chinese if language == "zh" else spec.zero_score.english
