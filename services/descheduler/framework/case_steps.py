"""The steps of a case: a few pods of each node leave, and the next ones only once the measured effect has followed.

These are rules of this system; upstream has none of them.
"""

from collections import Counter
from collections.abc import Sequence

from services.descheduler.configuration.configuration import Configuration
from services.descheduler.framework.measured_effect import ENDED_PHASES, last_end_ns, used
from services.descheduler.framework.migration_jobs import jobs_of, mode_and_ttl
from services.descheduler.state.descheduler_state import DeschedulerState
from services.descheduler.state.eviction_cases import OpenedCase
from shared.events import Draft
from shared.events.descheduling import EvictionCaseOpened, EvictionStepDecided, Victim

LEAST_EFFECT_PERCENT = 50
"""Share of the expected fall that must be measured on a node before more of its pods leave."""


def step_drafts(
    case: EvictionCaseOpened, step: int, victims: Sequence[Victim], per_node: int, mode: str, ttl_ns: int
) -> list[Draft]:
    """Starts the first of these victims, at most so many of each node, with their jobs; those of a gang all together, and
    so are all those that leave for a waiting unit.
    """
    counts: Counter[str] = Counter()
    chosen: list[Victim] = []
    for victim in victims:
        if victim in chosen or (counts[victim.node] >= per_node and case.unit is None):
            continue
        for each in victims if victim.gang else (victim,):
            if each.gang == victim.gang and each not in chosen:
                counts[each.node] += 1
                chosen.append(each)
    decided = EvictionStepDecided(case=case.case, step=step, pods=tuple(each.pod for each in chosen))
    return [Draft(decided, correlation=case.case), *jobs_of(case, chosen, mode, ttl_ns)]


def next_steps(state: DeschedulerState, configuration: Configuration, per_node: int) -> list[Draft]:
    """Takes the next step of each open case whose pods have all ended their moves, or stops it."""
    drafts: list[Draft] = []
    for opened in state.cases.open:
        case, started = opened.event, opened.started
        waiting = [each for each in case.victims if each.pod not in started]
        if case.dry_run or opened.stopped or not waiting or not _has_ended(state, opened):
            continue
        fault = _missing_effect(state, opened)
        if fault is None:
            continue
        if fault:
            stop = EvictionStepDecided(case=case.case, step=len(opened.steps) + 1, stopped=fault)
            drafts.append(Draft(stop, correlation=case.case))
        else:
            mode = mode_and_ttl(configuration, case.profile)
            drafts += step_drafts(case, len(opened.steps) + 1, waiting, per_node, *mode)
    return drafts


def _has_ended(state: DeschedulerState, opened: OpenedCase) -> bool:
    jobs = [state.cases.jobs.get(each.job) for each in opened.event.victims if each.pod in opened.started]
    return all(job is not None and job.phase in ENDED_PHASES for job in jobs)


def _missing_effect(state: DeschedulerState, opened: OpenedCase) -> str | None:
    """Returns why a case stops, empty where it goes on; None while a node has not reported since its pods left."""
    ended_ns = last_end_ns(state, opened)
    moved = [
        each
        for each in opened.event.victims
        if each.pod in opened.started and state.cases.jobs[each.job].phase == "Succeeded"
    ]
    if not moved:
        return "none of the pods before could be moved"
    for cause in opened.event.expected:
        fall = sum(each.usage.get(cause.resource, 0) for each in moved if each.node == cause.node)
        if not fall:
            continue
        report = state.cluster.report(cause.node)
        if report is None or report.at_ns <= ended_ns:
            return None
        measured = cause.before - used(report, cause.resource)
        if measured * 100 < fall * LEAST_EFFECT_PERCENT:
            return f"{cause.resource} of {cause.node} fell by {measured}, not by the expected {fall}"
    return ""
