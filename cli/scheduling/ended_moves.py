"""The moves of pods by PodMigrationJobs that have ended, and why those failed that did."""

from collections.abc import Sequence

from shared.events import RecordedEvent
from shared.events.migration import MigrationArbitrated, MigrationEnded
from shared.log.admin.newest_events import newest
from shared.log.reader import LogReader

CONTEXT = "descheduling"
MOST = 1000
"""Newest ends of jobs that are searched."""
MOST_OF_A_JOB = 10
"""Newest events of one job that are read."""

MOVED, EVICTED, FAILED = "moved", "evicted", "failed"
_STATES = {"Succeeded": MOVED, "Failed": FAILED, "Aborted": "aborted"}


def state_of(event: MigrationEnded) -> str:
    """Returns `moved`, `evicted` where no successor was awaited, `failed` or `aborted`; empty for a job that is gone."""
    return EVICTED if event.evicted_only else _STATES.get(event.phase, "")


def end_text(event: MigrationEnded) -> str:
    """Returns how a job ended, in words."""
    reason = f" ({event.reason})" if event.reason else ""
    message = f": {event.message}" if event.message else ""
    verb = {MOVED: "moved it", EVICTED: "evicted it without waiting for a successor"}.get(
        state_of(event), f"{state_of(event)}{reason}"
    )
    return f"PodMigrationJob {event.job} {verb}{message}"


async def ended_moves(log: LogReader, pod: str) -> Sequence[RecordedEvent]:
    """Returns the newest ends of jobs of pods of a name, the newest first.

    Args:
        pod: `namespace/name`.
    """
    if CONTEXT not in await log.contexts():
        return ()
    found = await newest(log.database, CONTEXT, [MigrationEnded], MOST)
    return [
        each.record for each in found if isinstance(event := each.record.event, MigrationEnded) and event.pod == pod
    ]


async def failed_move(log: LogReader, pod: str, pod_uid: str) -> str:
    """Returns that the newest move of a pod failed, and why, in words; empty where it did not."""
    for record in await ended_moves(log, pod):
        event = record.event
        if isinstance(event, MigrationEnded) and event.pod_uid in ("", pod_uid) and state_of(event):
            return f"the last move of it failed: {end_text(event)}" if state_of(event) == FAILED else ""
    return ""


async def pod_of_job(log: LogReader, job: str) -> str:
    """Returns the pod that a job moves or has moved; empty for a job that is not recorded."""
    if CONTEXT not in await log.contexts():
        return ""
    found = await newest(log.database, CONTEXT, [MigrationArbitrated, MigrationEnded], MOST_OF_A_JOB, key=job)
    events = [each.record.event for each in found]
    return next(
        (each.pod for each in events if isinstance(each, MigrationArbitrated | MigrationEnded) and each.pod), ""
    )
