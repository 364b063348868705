"""The move of a pod that is under way: an eviction case of the descheduler, or a PodMigrationJob."""

from typing import TypeVar

from shared.events import Event
from shared.events.descheduling import EvictionCaseClosed, EvictionCaseOpened
from shared.events.migration import MigrationArbitrated, MigrationEnded, MigrationEvictionDecided
from shared.log.admin.newest_events import newest
from shared.log.reader import LogReader

CONTEXT = "descheduling"
MOST = 100
"""Newest cases and begun jobs that are searched: those that go on are among them."""

Kind = TypeVar("Kind", bound=Event)


async def move_under_way(log: LogReader, pod: str, pod_uid: str) -> str:
    """Returns what moves a pod away from its node, in words; empty where nothing does.

    Args:
        pod: `namespace/name`.
    """
    if CONTEXT not in await log.contexts():
        return ""
    evicted = await _newest(log, MigrationEvictionDecided, 1, key=pod)
    for begun in await _newest(log, MigrationArbitrated, MOST):
        if begun.pod != pod or await _has_ended(log, begun):
            continue
        decided = next((each for each in evicted if each.job_uid == begun.job_uid), None)
        if decided is None:
            return f"PodMigrationJob {begun.job} moves it: a place is sought for it"
        if decided.pod_uid == pod_uid:
            to = f" to {decided.destination}" if decided.destination else ""
            return f"PodMigrationJob {begun.job} moves it{to}: its eviction is decided"
    for opened in await _newest(log, EvictionCaseOpened, MOST):
        if opened.dry_run or all((each.pod, each.pod_uid) != (pod, pod_uid) for each in opened.victims):
            continue
        if not await _newest(log, EvictionCaseClosed, 1, key=opened.case):
            return f"eviction case {opened.case} moves it: `koord why eviction {opened.case}`"
    return ""


async def _has_ended(log: LogReader, begun: MigrationArbitrated) -> bool:
    return any(each.job_uid == begun.job_uid for each in await _newest(log, MigrationEnded, 1, key=begun.job))


async def _newest(log: LogReader, kind: type[Kind], count: int, key: str | None = None) -> list[Kind]:
    found = await newest(log.database, CONTEXT, [kind], count, key=key)
    return [each.record.event for each in found if isinstance(each.record.event, kind)]
