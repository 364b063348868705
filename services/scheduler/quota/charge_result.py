"""Applies the ledger's response to a cycle: placements of refused pods are taken back, and what depends on them.

A pod that found no node behind a pod that is taken back may find one without it: it is left out of the cycle, and tried
in the next.

Source: architecture.md, Charging quota.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from services.scheduler.framework.reasons import text
from services.scheduler.state.quota_reasons import CODE_OF_STAGE, PLUGIN, UNREACHABLE
from shared.domain.quota_charge import QuotaShort
from shared.events import Draft, Event
from shared.events.scheduling import ClassEvaluated, CycleDecided, PodOutcome, PodPlaced, PodUnschedulable, Rejections


class PendingCondition(NamedTuple):
    """The condition of a pod that waits.

    Attributes:
        code: as written to the pod last; empty for none.
        attempt: how many cycles have refused the pod, this one included.
    """

    code: str
    attempt: int


def pods_to_charge(drafts: Sequence[Draft], needs_charge: Callable[[str], bool]) -> tuple[tuple[str, ...], ...]:
    """Returns the groups of pods, by uid, that need a charge, in the order in which they were placed."""
    placed = (draft.event for draft in drafts if isinstance(draft.event, PodPlaced))
    return tuple((event.pod_uid,) for event in placed if needs_charge(event.pod_uid))


def apply_charge_result(
    drafts: Sequence[Draft],
    refused: Mapping[str, QuotaShort | None],
    condition_of: Callable[[str], PendingCondition],
    charged_at: int,
) -> tuple[Draft, ...]:
    """Returns the cycle without the placements that were refused.

    Args:
        refused: uid -> shortfall of its quota; None where the ledger did not respond.
        condition_of: uid -> the pod's condition.
        charged_at: `quota` seq of the response.
    """
    if not drafts or not isinstance(drafts[0].event, CycleDecided):
        return tuple(drafts)
    decided = drafts[0].event
    if not refused:
        if not charged_at:
            return tuple(drafts)
        return (drafts[0]._replace(event=replace(decided, charged_at=charged_at)), *drafts[1:])
    outcomes: list[PodOutcome] = []
    classes = list(decided.classes)
    left_out: set[str] = set()
    class_of_reason: dict[tuple[int, str, str], int] = {}
    is_capacity_freed = False
    for outcome in decided.pods:
        uid = outcome.pod_uid
        if outcome.node and uid in refused:
            is_capacity_freed = True
            code, detail = _reason(refused[uid])
            nodes = decided.classes[outcome.class_index].nodes
            key = (nodes, code, detail)
            if key not in class_of_reason:
                class_of_reason[key] = len(classes)
                rejected = Rejections(plugin=PLUGIN, code=code, nodes=nodes, detail=detail)
                classes.append(ClassEvaluated(nodes=nodes, feasible=0, rejected=(rejected,)))
            outcomes.append(PodOutcome(pod_uid=uid, class_index=class_of_reason[key]))
        elif not outcome.node and is_capacity_freed:
            left_out.add(uid)
        else:
            outcomes.append(outcome)
    first = replace(decided, pods=tuple(outcomes), classes=tuple(classes), charged_at=charged_at)
    rest: list[Draft] = []
    for draft in drafts[1:]:
        uid = draft.correlation or ""
        if uid in refused and isinstance(draft.event, PodPlaced):
            if (event := _unschedulable(draft.event, decided, refused[uid], condition_of(uid))) is not None:
                rest.append(Draft(event, draft.cause, uid))
        elif uid not in left_out:
            rest.append(draft)
    return (drafts[0]._replace(event=first), *rest)


def _reason(short: QuotaShort | None) -> tuple[str, str]:
    if short is None:
        return UNREACHABLE, ""
    resources = " ".join(sorted(short.short))
    return CODE_OF_STAGE.get(short.stage, CODE_OF_STAGE["quota"]), f"{short.quota}, exceedDimensions: [{resources}]"


def _unschedulable(
    placed: PodPlaced, decided: CycleDecided, short: QuotaShort | None, condition: PendingCondition
) -> Event | None:
    """The event that writes the pod's condition; None where the condition has the code already."""
    code, detail = _reason(short)
    if code == condition.code:
        return None
    outcome = next(one for one in decided.pods if one.pod_uid == placed.pod_uid)
    reason = short.message if short is not None and short.message else text(code, detail)
    return PodUnschedulable(
        pod_uid=placed.pod_uid,
        pod=placed.pod,
        cycle=placed.cycle,
        code=code,
        message=f"0/{decided.classes[outcome.class_index].nodes} nodes are available: {reason}.",
        plugins=(PLUGIN,),
        attempt=condition.attempt,
    )
