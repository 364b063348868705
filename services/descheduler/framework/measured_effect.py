"""Usage of a node after the moves of a case, and the instant at which these had ended."""

from services.descheduler.state.descheduler_state import DeschedulerState
from services.descheduler.state.eviction_cases import OpenedCase
from services.descheduler.state.load_report import LoadReport

ENDED_PHASES = ("Succeeded", "Failed", "Aborted")
"""Phases of a PodMigrationJob that has ended."""


def last_end_ns(state: DeschedulerState, opened: OpenedCase) -> int:
    """Returns when the last move of a case so far was observed as ended; without any, when it was opened."""
    jobs = [state.cases.jobs[each.job] for each in opened.event.victims if each.job in state.cases.jobs]
    return max((job.at_ns for job in jobs if job.phase in ENDED_PHASES), default=opened.at_ns)


def used(report: LoadReport, resource: str) -> int:
    """Returns the usage of a node in a report, as LowNodeLoad counts it; 0 for a resource that reports do not have."""
    return sum(part.get(resource, 0) for part in (report.system, *report.pods.values()))
