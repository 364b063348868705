"""A cycle as the ledger left it: the pods that it refused are taken back, and so is what was decided on them.

A pod that found no node behind one that is taken back may find one without it: it is left out of the cycle, and tried in the next.

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


class Told(NamedTuple):
    """What is known of a pod that is told why it waits.

    Attributes:
        code: what it was told last.
        attempt: how many cycles have refused it, with this one.
    """

    code: str
    attempt: int


def to_charge(drafts: Sequence[Draft], needs_charge: Callable[[str], bool]) -> tuple[tuple[str, ...], ...]:
    """The pods of a cycle that the ledger has to be asked for, by uid, in the order in which they were placed."""
    placed = (draft.event for draft in drafts if isinstance(draft.event, PodPlaced))
    return tuple((event.pod_uid,) for event in placed if needs_charge(event.pod_uid))


def settled(
    drafts: Sequence[Draft],
    refused: Mapping[str, QuotaShort | None],
    told: Callable[[str], Told],
    charged_at: int,
) -> tuple[Draft, ...]:
    """The cycle without the pods that were refused.

    Args:
        refused: uid -> what its quota is short of; None where nobody answered.
        told: what is known of a pod, by uid.
        charged_at: `quota` seq of the answer.
    """
    if not drafts or not isinstance(drafts[0].event, CycleDecided):
        return tuple(drafts)
    decided = drafts[0].event
    if not refused:
        return (
            (drafts[0]._replace(event=replace(decided, charged_at=charged_at)), *drafts[1:])
            if charged_at
            else tuple(drafts)
        )
    outcomes: list[PodOutcome] = []
    classes = list(decided.classes)
    left_out: set[str] = set()
    of_reason: dict[tuple[int, str, str], int] = {}
    has_freed_capacity = False
    for outcome in decided.pods:
        uid = outcome.pod_uid
        if outcome.node and uid in refused:
            has_freed_capacity = True
            code, detail = _reason(refused[uid])
            nodes = decided.classes[outcome.class_index].nodes
            key = (nodes, code, detail)
            if key not in of_reason:
                of_reason[key] = len(classes)
                rejected = Rejections(plugin=PLUGIN, code=code, nodes=nodes, detail=detail)
                classes.append(ClassEvaluated(nodes=nodes, feasible=0, rejected=(rejected,)))
            outcomes.append(PodOutcome(pod_uid=uid, class_index=of_reason[key]))
        elif not outcome.node and has_freed_capacity:
            left_out.add(uid)
        else:
            outcomes.append(outcome)
    first = replace(decided, pods=tuple(outcomes), classes=tuple(classes), charged_at=charged_at)
    rest: list[Draft] = []
    for draft in drafts[1:]:
        uid = draft.correlation or ""
        if uid in refused and isinstance(draft.event, PodPlaced):
            if (event := _told(draft.event, decided, refused[uid], told(uid))) is not None:
                rest.append(Draft(event, draft.cause, uid))
        elif uid not in left_out:
            rest.append(draft)
    return (drafts[0]._replace(event=first), *rest)


def _reason(short: QuotaShort | None) -> tuple[str, str]:
    if short is None:
        return UNREACHABLE, ""
    resources = " ".join(sorted(short.short))
    return CODE_OF_STAGE.get(short.stage, CODE_OF_STAGE["quota"]), f"{short.quota}, exceedDimensions: [{resources}]"


def _told(placed: PodPlaced, decided: CycleDecided, short: QuotaShort | None, told: Told) -> Event | None:
    code, detail = _reason(short)
    if code == told.code:
        return None  # the pod says so already
    outcome = next(one for one in decided.pods if one.pod_uid == placed.pod_uid)
    words = short.message if short is not None and short.message else text(code, detail)
    return PodUnschedulable(
        pod_uid=placed.pod_uid,
        pod=placed.pod,
        cycle=placed.cycle,
        code=code,
        message=f"0/{decided.classes[outcome.class_index].nodes} nodes are available: {words}.",
        plugins=(PLUGIN,),
        attempt=told.attempt,
    )
