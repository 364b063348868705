"""Closes the cases whose moves have all ended, with the benefit that was measured afterwards."""

from services.descheduler.framework.measured_effect import last_end_ns, used
from services.descheduler.framework.units_that_wait import end_of_unit
from services.descheduler.state.descheduler_state import DeschedulerState
from services.descheduler.state.eviction_cases import STILL_WAITS, OpenedCase
from shared.events import Draft
from shared.events.descheduling import EvictionCaseClosed, Measured, Victim, VictimOutcome
from shared.kube.instants import SECOND

MOVED, EVICTED, STAYED = "moved", "evicted", "stayed"
ALL, SOME, NONE, DRY_RUN = "moved", "partly", "none", "dry run"
ENDED = {"Succeeded": MOVED, "Failed": STAYED, "Aborted": STAYED}
"""Phase of a job that has ended -> the outcome of its victim, where the job awaits its successor."""

UNOBSERVED_NS = 120 * SECOND
"""A job that was not observed so long after its case was opened was not made."""

UNMEASURED_NS = 600 * SECOND
"""A node without a report for so long after the last move is closed without a measurement."""


def close_cases(state: DeschedulerState, now_ns: int) -> list[Draft]:
    """Returns the ends of cases that have one now."""
    return [
        Draft(event, correlation=event.case) for each in state.cases.open if (event := _closed(state, each, now_ns))
    ]


def _closed(state: DeschedulerState, opened: OpenedCase, now_ns: int) -> EvictionCaseClosed | None:
    case = opened.event
    if case.dry_run:
        return EvictionCaseClosed(case=case.case, outcome=DRY_RUN)
    found = [_outcome(state, opened, victim, now_ns) for victim in case.victims]
    outcomes = [each for each in found if each is not None]
    if len(outcomes) < len(found):
        return None
    ended_ns = last_end_ns(state, opened)
    measured = []
    for each in case.expected:
        report = state.cluster.report(each.node)
        if report is not None and report.at_ns > ended_ns:
            total = used(report, each.resource)
            measured.append(Measured(each.node, each.resource, each.before, each.after, total))
        elif now_ns - ended_ns < UNMEASURED_NS and case.victims:
            return None
        else:
            measured.append(Measured(each.node, each.resource, each.before, each.after))
    outcome, unit = _of_all([each.outcome for each in outcomes]), end_of_unit(state, opened, now_ns)
    if unit is None and outcome != NONE:
        return None
    unit = STILL_WAITS if unit is None else unit
    ended = tuple(outcomes)
    return EvictionCaseClosed(case=case.case, outcome=outcome, victims=ended, measured=tuple(measured), unit=unit)


def _of_all(outcomes: list[str]) -> str:
    left = sum(each != STAYED for each in outcomes)
    if not left:
        return NONE
    if left < len(outcomes):
        return SOME
    return EVICTED if EVICTED in outcomes else ALL


def left_node(victim: Victim, *, is_direct: bool) -> VictimOutcome:
    """Returns the outcome of a victim that has left its node. One without a controller has no successor."""
    if not victim.owner:
        return VictimOutcome(victim.pod, EVICTED, "without a successor, it has no controller")
    if is_direct:
        return VictimOutcome(victim.pod, EVICTED, "its controller makes it anew on any node")
    return VictimOutcome(victim.pod, MOVED)


def _was_evicted(state: DeschedulerState, victim: Victim) -> bool:
    """Returns whether the eviction of a victim was carried out; its job may have failed afterwards."""
    found = state.migration.eviction(victim.pod_uid)
    return found is not None and found.outcome is not None and found.outcome.done


def _outcome(state: DeschedulerState, opened: OpenedCase, victim: Victim, now_ns: int) -> VictimOutcome | None:
    """Returns how the move of a victim ended; None while it has not."""
    if victim.pod not in opened.started:
        return VictimOutcome(victim.pod, STAYED, opened.stopped) if opened.stopped else None
    job = state.cases.jobs.get(victim.job)
    pod = state.cluster.pods.by_uid.get(victim.pod_uid)
    has_left = pod is None or pod.metadata.deletion_timestamp is not None
    if job is None:
        if now_ns - opened.at_ns < UNOBSERVED_NS:
            return None
        if has_left:
            return left_node(victim, is_direct=False)
        return VictimOutcome(victim.pod, STAYED, "its job is gone")
    if job.phase not in ENDED:
        return None
    if ENDED[job.phase] == MOVED:
        return left_node(victim, is_direct=job.is_direct)
    if has_left and _was_evicted(state, victim):
        return VictimOutcome(victim.pod, EVICTED, job.message or job.phase)
    return VictimOutcome(victim.pod, STAYED, job.message or job.phase)
