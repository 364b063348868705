"""Applies the ledger's response to a plan: placements of refused units are taken back, and what depends on them.

A pod that found no node behind a unit that is taken back may find one without it: it is left out of the plan, and tried
in the next cycle.

Source: architecture.md, Charging quota.
"""

from collections.abc import Callable, Iterator, Mapping

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_plan import CyclePlan, PlacedPod, RefusedPod
from services.scheduler.framework.nominations_and_victims_of_cycle import CyclePreemptions, Nomination
from services.scheduler.framework.post_filter import PostFilterCycle, PostFilters, RefusedByQuota
from services.scheduler.framework.reasons import text
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.quota_reason_codes import CODE_OF_STAGE, PLUGIN, UNREACHABLE
from shared.domain.quota_charge import REJECTED
from shared.events.scheduling import ClassEvaluated, QuotaShort, Rejections

Refused = Mapping[str, QuotaShort | None]
"""uid -> the shortfall of its quota; None where the ledger did not respond."""


def groups_to_charge(plan: CyclePlan, needs_charge: Callable[[PodClass], bool]) -> tuple[tuple[PodRecord, ...], ...]:
    """Returns the pods that need a charge, in the order in which they were placed; those of a unit are one group."""
    groups: list[list[PodRecord]] = []
    unit = 0
    for placed in plan.placed():
        if not needs_charge(placed.pod_class):
            continue
        if placed.unit and placed.unit == unit:
            groups[-1].append(placed.pod)
        else:
            groups.append([placed.pod])
        unit = placed.unit
    return tuple(tuple(group) for group in groups)


def charged_plan(cache: CycleInputs, plan: CyclePlan, refused: Refused, charged_at: int) -> CyclePlan:
    """Returns the plan without the units that were refused, with the preemptions for them.

    The cache must be as it was for the plan.

    Args:
        charged_at: `quota` seq of the response; 0 without one.
    """
    after = without_refused(plan, refused, charged_at)
    if plan.by:  # another scheduler preempts for itself
        return after
    preemptions = CyclePreemptions(cache, cache.nominated)
    nominations = tuple(_nominations(cache, plan, after, refused, preemptions))
    return _with_losses(after._replace(nominations=nominations), preemptions)


def _with_losses(plan: CyclePlan, preemptions: CyclePreemptions) -> CyclePlan:
    """Returns the plan with the refused pods that lost their nominations after the charge."""
    if not preemptions.lost:
        return plan
    decisions = (
        each._replace(loses_nomination=True)
        if isinstance(each, RefusedPod) and each.pod.uid in preemptions.lost
        else each
        for each in plan.decisions
    )
    return plan._replace(decisions=tuple(decisions))


def without_refused(plan: CyclePlan, refused: Refused, charged_at: int) -> CyclePlan:
    """Returns the plan without the placements of refused units, members that need no charge included.

    The other pods of such a unit are refused with it: otherwise they would be tried at once, and the unit with them.
    """
    by_unit = {placed.unit: refused[placed.pod.uid] for placed in plan.placed() if placed.pod.uid in refused}
    by_unit.pop(0, None)  # pods that are units of their own
    decisions: list[PlacedPod | RefusedPod] = []
    evaluations = list(plan.evaluations)
    class_of_reason: dict[tuple[int, str, str], int] = {}
    left_out = dict(plan.left_out)
    is_capacity_freed = False
    for decision in plan.decisions:
        if isinstance(decision, RefusedPod):
            if not is_capacity_freed:
                decisions.append(decision)
            continue
        pod = decision.pod
        if pod.uid not in refused and decision.unit not in by_unit:
            decisions.append(decision)
            continue
        is_capacity_freed = True
        short = refused[pod.uid] if pod.uid in refused else by_unit[decision.unit]
        code, detail = _reason(short)
        nodes = plan.evaluations[decision.class_index].nodes
        key = nodes, code, detail
        if key not in class_of_reason:
            class_of_reason[key] = len(evaluations)
            rejected = Rejections(plugin=PLUGIN, code=code, nodes=nodes, detail=detail)
            evaluations.append(ClassEvaluated(nodes=nodes, feasible=0, rejected=(rejected,)))
        reason = short.message if short is not None and short.message else text(code, detail)
        message = f"0/{nodes} nodes are available: {reason}."
        others = left_out.pop(decision.unit, ())
        decisions += [RefusedPod(each, class_of_reason[key], message=message) for each in (pod, *others)]
    return plan._replace(decisions=tuple(decisions), evaluations=tuple(evaluations), charged_at=charged_at)


def _nominations(
    cache: CycleInputs, plan: CyclePlan, after: CyclePlan, refused: Refused, preemptions: CyclePreemptions
) -> Iterator[Nomination]:
    """Yields the preemptions for refused pods that are units of their own, the highest priority first.

    Victims for one pod of a unit of several would be evicted in vain where another has no capacity.
    """
    for decision in after.decisions:
        if isinstance(decision, RefusedPod) and decision.nomination is not None:
            preemptions.count(decision.nomination)
    cycle = PostFilterCycle(
        cache, cache.nominated, preemptions, lambda: ((each.pod, each.pod_class) for each in after.placed())
    )
    post_filters = PostFilters(cycle)
    placed = {each.pod.uid: each for each in plan.placed() if not each.unit}
    short_of = [(placed[uid], short) for uid, short in refused.items() if short is not None and uid in placed]
    for each, short in sorted(short_of, key=lambda pair: -pair[0].pod_class.priority):
        profile = cache.profiles.get(each.pod_class.scheduler)
        if profile is not None:
            refused_pod = RefusedByQuota(each.pod, each.pod_class, each.node, short)
            found = post_filters.after_charge(profile.post_filters, refused_pod)
            if found is not None:
                yield found


def _reason(short: QuotaShort | None) -> tuple[str, str]:
    if short is None:
        return UNREACHABLE, ""
    if short.stage == REJECTED:
        return CODE_OF_STAGE[REJECTED], short.quota
    resources = " ".join(sorted(short.short))
    return CODE_OF_STAGE.get(short.stage, CODE_OF_STAGE["quota"]), f"{short.quota}, exceedDimensions: [{resources}]"
