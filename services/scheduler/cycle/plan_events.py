"""The events of a plan: CycleDecided, then those of each pod in the order of the decisions."""

from collections import Counter
from collections.abc import Iterator

from services.scheduler.cycle.cycle_plan import (
    CyclePlan,
    PlacedPod,
    RefusedPod,
    ReleasedPod,
    StartDecision,
)
from services.scheduler.cycle.pod_scheduled_condition import main_code, message
from services.scheduler.framework.nominations_and_victims_of_cycle import Nomination
from services.scheduler.framework.reasons import UNREADABLE_POD, text
from services.scheduler.state.ignored_pod_settings import ignored_settings_of
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.domain.node_lock import node_lock_of
from shared.domain.reservation import PRE_ALLOCATION_FIELDS, allocated_text, pre_allocated_pods
from shared.events import Cause, Draft, Event
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.scheduling import (
    CycleDecided,
    GangPlaced,
    PlacementReleased,
    PlacementReserved,
    PodNominated,
    PodOutcome,
    PodPlaced,
    PodUnschedulable,
    ReservationUnschedulable,
    UnitStartPlanned,
)
from shared.kube.device import GPU_MINORS, HAMI_CORE, HAMI_NODE, ISOLATION_PROVIDER
from shared.kube.system_annotations import RESERVATION_ALLOCATED

NOMINATED_NODE = "nominated-node"
"""The field group of `status.nominatedNodeName`."""

NOTHING_HELPS = "no pod leaves for it, and no further eviction would make room"
"""Why a pod loses its nomination to no other pod."""


def drafts_of(plan: CyclePlan) -> tuple[Draft, ...]:
    """Returns the events of a plan; none when it decides about no pod."""
    if not plan.decisions and not plan.released and not plan.lost and not plan.planned:
        return ()
    outcomes: list[PodOutcome] = []
    drafts: list[Draft] = []
    reservations: list[str] = []
    for decision in plan.decisions:
        pod = decision.pod
        cause = Cause("cluster", pod.since)
        if pod.pod_class is not None and pod.pod_class.reserves:
            reservations.append(pod.uid)
        if isinstance(decision, PlacedPod):
            outcomes.append(PodOutcome(pod_uid=pod.uid, class_index=decision.class_index, node=decision.node))
            drafts.append(Draft(_placed(plan, decision), cause, pod.uid))
            drafts += [Draft(event, cause, pod.uid) for event in (*_taken_over(decision), *_named_for_hami(decision))]
            for preparation in decision.hold.preparations if decision.hold is not None else ():
                drafts += [Draft(event, cause, pod.uid) for event in preparation.events()]
        else:
            outcomes.append(PodOutcome(pod_uid=pod.uid, class_index=decision.class_index))
            drafts += [Draft(event, cause, pod.uid) for event in _refused(plan, decision)]
    for nomination in plan.nominations:
        pod = nomination.pod
        drafts += [Draft(event, Cause("cluster", pod.since), pod.uid) for event in _nominated(plan, nomination)]
    for released in plan.released:
        events = (_released(released), *released.withdrawn)
        drafts += [Draft(event, Cause("cluster", released.pod.since), released.pod.uid) for event in events]
    for lost in plan.lost:
        events_of_end = _nomination_ended(plan, lost.pod, lost.reason)
        drafts += [Draft(event, Cause("cluster", lost.pod.since), lost.pod.uid) for event in events_of_end]
    drafts += [Draft(event) for event in _gangs_placed(plan)]
    drafts += [Draft(_start_planned(plan, decision)) for decision in plan.planned]
    decided = CycleDecided(
        cycle=plan.cycle,
        pods=tuple(outcomes),
        classes=plan.evaluations,
        by=plan.by,
        charged_at=plan.charged_at,
        reservations=tuple(reservations),
        refused=dict(plan.refused),
    )
    return (Draft(decided), *drafts)


def _gangs_placed(plan: CyclePlan) -> Iterator[GangPlaced]:
    """Yields the gangs that were placed for the first time, without those of units that the charge took back."""
    if not plan.starts:
        return
    placed: dict[int, list[PlacedPod]] = {}
    for each in plan.placed():
        if each.unit in plan.starts:
            placed.setdefault(each.unit, []).append(each)
    for unit, pods in placed.items():
        for start in plan.starts[unit]:
            members = [each for each in pods if each.pod.uid in start.uids]
            if not members:
                continue
            request: Counter[str] = Counter()
            for pod_class, count in Counter(each.pod_class for each in members).items():
                request.update({name: count * size for name, size in pod_class.request.items()})
            yield GangPlaced(
                gang=start.gang,
                cycle=plan.cycle,
                waited_ns=start.waited_ns,
                pods=len(members),
                request=dict(request),
                quota=start.quota,
                priority=start.priority,
                qos=start.qos,
            )


def _released(released: ReleasedPod) -> PlacementReleased:
    pod = released.pod
    return PlacementReleased(
        holder_uid=pod.uid,
        holder=pod.name,
        kind="Reservation" if pod.pod_class is not None and pod.pod_class.reserves else "Pod",
        node=pod.placed_node,
        reason=released.reason,
        unit=pod.hold.unit if pod.hold is not None else "",
    )


def _placed(plan: CyclePlan, placed: PlacedPod) -> PodPlaced | PlacementReserved:
    hold = placed.hold
    if placed.pod_class.reserves or hold is not None:
        return PlacementReserved(
            holder_uid=placed.pod.uid,
            holder=placed.pod.name,
            kind="Reservation" if placed.pod_class.reserves else "Pod",
            node=placed.node,
            cycle=plan.cycle,
            waits_for=hold.waits_for if hold is not None else "owners",
            unit=hold.unit if hold is not None else "",
            request=placed.pod_class.request,
            score=placed.score,
            annotations=dict(placed.allocation),
        )
    return PodPlaced(
        pod_uid=placed.pod.uid,
        pod=placed.pod.name,
        node=placed.node,
        cycle=plan.cycle,
        request=placed.pod_class.request,
        score=placed.score,
        annotations=dict(placed.allocation),
        node_lock=node_lock_of(placed.allocation),
        passes=dict(plan.passes.get(placed.pod.uid, {})),
        ignored=ignored_settings_of(placed.pod_class),
    )


def _start_planned(plan: CyclePlan, decision: StartDecision) -> UnitStartPlanned:
    return UnitStartPlanned(
        unit=decision.group.key,
        scheduler=decision.group.scheduler,
        plugin=decision.group.plugin,
        cycle=plan.cycle,
        nodes=dict(decision.nodes),
        waits_for=decision.waits_for,
        starts_ns=decision.starts_ns,
        reason=decision.reason,
    )


def _taken_over(placed: PlacedPod) -> Iterator[FieldsDesired]:
    """Yields the desired annotation of the pods that a Reservation takes over."""
    for uid, name in pre_allocated_pods(placed.allocation):
        text = allocated_text(placed.pod.name, placed.pod.uid)
        patch = {"metadata": {"annotations": {RESERVATION_ALLOCATED: text}}}
        yield FieldsDesired(resource="pods", name=name, fields=PRE_ALLOCATION_FIELDS, patch=patch, uid=uid)


def _named_for_hami(placed: PlacedPod) -> Iterator[FieldsDesired]:
    """Yields the desired label of a pod whose GPUs HAMi-core isolates, where device plugins of vendors are served.

    Source: spec/scheduler-workloads.md 3.9.
    """
    if placed.hold is not None or placed.pod_class.reserves or GPU_MINORS not in placed.allocation:
        return
    if (placed.pod_class.pod.metadata.labels or {}).get(ISOLATION_PROVIDER) == HAMI_CORE:
        patch = {"metadata": {"labels": {HAMI_NODE: placed.node}}}
        yield FieldsDesired(resource="pods", name=placed.pod.name, fields="hami-node", patch=patch, uid=placed.pod.uid)


def _refused(plan: CyclePlan, refused: RefusedPod) -> Iterator[Event]:
    condition = _condition(plan, refused)
    if condition is not None:
        yield condition
    if refused.nomination is not None:
        yield from _nominated(plan, refused.nomination)
    if refused.loses_nomination:
        yield from _nomination_ended(plan, refused.pod, NOTHING_HELPS)


def _condition(plan: CyclePlan, refused: RefusedPod) -> PodUnschedulable | ReservationUnschedulable | None:
    """Returns the event that writes the pod's condition; None where the condition has the code already: other counts
    of nodes are not worth a write.
    """
    pod, evaluation = refused.pod, plan.evaluations[refused.class_index]
    pod_class = pod.pod_class
    assert pod_class is not None, "only pods that have been read are tried"
    code = UNREADABLE_POD if pod_class.fault else main_code(evaluation)
    if code == pod.condition_code:
        return None
    if pod_class.fault:
        words = f"{text(code)}: {pod_class.fault}"
    else:
        words = refused.message or message(evaluation, plan.profiles[pod_class.scheduler].texts)
    plugins, attempt = tuple(dict.fromkeys(rejected.plugin for rejected in evaluation.rejected)), pod.attempts + 1
    if pod_class.reserves:
        return ReservationUnschedulable(
            reservation_uid=pod.uid,
            reservation=pod.name,
            cycle=plan.cycle,
            code=code,
            message=words,
            plugins=plugins,
            attempt=attempt,
        )
    return PodUnschedulable(
        pod_uid=pod.uid,
        pod=pod.name,
        cycle=plan.cycle,
        code=code,
        message=words,
        plugins=plugins,
        attempt=attempt,
        ignored=ignored_settings_of(pod_class),
    )


def _nominated(plan: CyclePlan, nomination: Nomination) -> Iterator[Event]:
    """Yields the nomination, the eviction requests, and the ends of nominations of lower priority for the node."""
    pod, candidate = nomination.pod, nomination.candidate
    victims = candidate.victims
    yield PodNominated(
        pod_uid=pod.uid,
        pod=pod.name,
        node=candidate.node,
        cycle=plan.cycle,
        victims=tuple(victim.uid for victim in victims),
        violations=candidate.violations,
        budgets=candidate.budgets,
        victim_pods=tuple(victim.name for victim in victims),
        victim_priorities=tuple(victim.priority for victim in victims),
        candidates=nomination.candidates,
        quota=nomination.quota,
    )
    yield from _nominated_node(pod, candidate.node)
    where = f"in quota {nomination.quota}" if nomination.quota else f"on node {candidate.node}"
    reason = f"preempted by {pod.name} of priority {nomination.pod_class.priority} {where}"
    for victim in nomination.evicted:
        yield EvictionRequested(pod_uid=victim.uid, pod=victim.name, reason=reason)
    for other in nomination.ended:
        yield from _nomination_ended(plan, other)


def _nomination_ended(plan: CyclePlan, pod: PodRecord, reason: str = "") -> Iterator[Event]:
    yield PodNominated(pod_uid=pod.uid, pod=pod.name, node="", cycle=plan.cycle, reason=reason)
    yield from _nominated_node(pod, "")


def _nominated_node(pod: PodRecord, node: str) -> Iterator[FieldsDesired]:
    """Yields the desired `status.nominatedNodeName` of a pod; a pod that stands for a Reservation has no object."""
    if pod.pod_class is not None and pod.pod_class.reserves:
        return
    patch = {"status": {"nominatedNodeName": node or None}}
    yield FieldsDesired(
        resource="pods", name=pod.name, fields=NOMINATED_NODE, patch=patch, subresource="status", uid=pod.uid
    )
