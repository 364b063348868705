"""`koord why gang`: what a gang lacks, the member that failed it and the plugins that rejected that member."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from cli.scheduling.answer_from_log import answer
from cli.scheduling.gang_start import PlannedGangStart, StartEstimate, planned_start, start_estimate
from cli.scheduling.recorded_state import scheduler_state
from cli.scheduling.waiting_answers import PendingPod, Refusal, below_heading, pending_in, queue_place
from cli.terminal.durations import times
from cli.terminal.object_name import namespaced_name
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, table_lines
from services.scheduler.explain.gang_status import (
    IGNORED,
    INCOMPLETE,
    SATISFIED,
    UNKNOWN,
    GangStatus,
    gang_status,
    ignored_settings,
)
from services.scheduler.explain.impossible_requests import NO_NODES, impossible_of
from services.scheduler.explain.waiting_order_config import rules_in_force
from services.scheduler.explain.waiting_pods import waiting_pods
from services.scheduler.framework.reasons import NETWORK_DOMAIN_TOO_SMALL, UNIT_NOT_PLACED
from services.scheduler.plugins.registry import text
from services.scheduler.state.scheduler_state import SchedulerState
from shared.closest_name import did_you_mean
from shared.domain.gang import MINIMUM
from shared.errors import KoordError
from shared.events.scheduling import PodUnschedulable
from shared.first_names import first_names
from shared.log.admin.newest_events import newest
from shared.log.reader import LogReader

MOST_READ = 20
"""Members whose conditions are read: those of a gang that was refused have the same."""


class UnknownGang(KoordError):
    """No pod and no PodGroup has this gang."""

    def __init__(self, name: str, view: SchedulerState) -> None:
        there = sorted(view.gangs.gangs)
        known = f"known: {first_names(there, 10)}" if there else "there are no gangs"
        super().__init__(f"there is no gang {name!r}{did_you_mean(name, there)}; {known}")


class GangMember(msgspec.Struct, frozen=True):
    """A pod of the gang.

    Attributes:
        stage: `bound`, `placed`, `pending`, or `other` for a pod that counts in none of these.
        refused_by: the plugins that rejected nodes for it at its last attempt.
    """

    name: str
    stage: str
    node: str
    waits_for: str = ""
    refused_by: tuple[Refusal, ...] = ()


class GangExplanation(msgspec.Struct, frozen=True):
    """The state of a gang.

    Attributes:
        state: `satisfied`, `waiting`, `incomplete`, `ignored` or `unknown`.
        summary: one sentence.
        declared_by: `PodGroup` or `pods`.
        minimum, total: pods that are placed together, and pods as declared.
        groups: the gangs that are placed together with it.
        needed: how many more of its pods have to be placed.
        place: of the gang in the queue; 0 where it is not there.
        since: instant of the first observation of a waiting pod; last_attempt, next_attempt: instants, may be empty.
        failed_member: the pod without a node at the last attempt; empty without one.
        nearest_domain: which network domain came closest at the last attempt; empty where none was too small.
        condition: the message in its members' condition.
        estimated_start: when it is expected to be placed; None for one that does not wait as a whole.
        ignored: its settings that cannot be read, each with what is in force instead.
        planned_start: the nodes that are kept for it; None without backfill, and where none is planned.
        mistakes: requests of its pending pods that no cycle can meet, each with the first pod that makes it.
        remedy: what to do where it is not tried since it lacks pods of its own; else empty.
    """

    gang: str
    state: str
    summary: str
    declared_by: str
    minimum: int
    total: int
    mode: str
    match_policy: str
    groups: tuple[str, ...]
    exists: int
    pending: int
    placed: int
    bound: int
    needed: int
    place: int
    since: str
    attempts: int
    last_attempt: str
    next_attempt: str
    failed_member: str
    nearest_domain: str
    condition: str
    members: tuple[GangMember, ...]
    estimated_start: StartEstimate | None = None
    planned_start: PlannedGangStart | None = None
    ignored: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    remedy: str = ""


@click.command
@namespaced_name
@output_option
@folder_option
def gang(*, name: str, output: Format, folder: Path) -> None:
    """Explain what a gang waits for: its missing pods, or the member that no node admits.

    Shows the plugins that rejected that member, its place in the queue, its estimated start, and every member.
    """

    async def explained(log: LogReader) -> GangExplanation:
        return await explain_gang(log, await scheduler_state(log), name)

    answer(folder, output, explained, _lines)


async def explain_gang(log: LogReader, view: SchedulerState, name: str) -> GangExplanation:
    """Explains a gang by its id.

    Raises:
        UnknownGang: no pod and no PodGroup has it.
    """
    rules = rules_in_force(view)
    status = gang_status(view, rules, name)
    if status is None:
        raise UnknownGang(name, view)
    uids = {member.record.uid for member in status.members}
    now_ns = time.time_ns()
    waiting = [each for each in waiting_pods(view, rules, now_ns) if each.record.uid in uids]
    pending = {each.pod_uid: each for each in await pending_in(log, view, waiting)}
    failed = _failed(list(pending.values()))
    condition = await _condition(log, status) if status.state != SATISFIED else ""
    explanation = _explanation(status, pending, failed, condition)
    return msgspec.structs.replace(
        explanation,
        estimated_start=start_estimate(view, status, now_ns),
        planned_start=planned_start(view, status),
        ignored=ignored_settings(view, rules, name),
        mistakes=_mistakes(view, status),
        remedy=_remedy(status),
    )


def _mistakes(view: SchedulerState, status: GangStatus) -> tuple[str, ...]:
    found = impossible_of(view, (member.record for member in status.members if member.stage == "pending"))
    return tuple(fault if fault == NO_NODES else f"{pod}: {fault}" for fault, pod in found.items())


def _remedy(status: GangStatus) -> str:
    """Returns what to do about a gang that has fewer pods than it needs; empty for another one."""
    lacks = 0
    if status.state == INCOMPLETE and status.settings is not None:
        lacks = status.settings.minimum - sum(bool(member.stage) for member in status.members)
    if lacks <= 0:
        return ""
    setting = "spec.minMember of its PodGroup" if status.record.has_pod_group else f"annotation {MINIMUM} of its pods"
    return f"create {lacks} more pod{'' if lacks == 1 else 's'} of it, or lower {setting}"


async def _condition(log: LogReader, status: GangStatus) -> str:
    """Returns the newest message by which a member was refused together with the others."""
    for member in status.members[:MOST_READ]:
        for found in await newest(log.database, "scheduling", [PodUnschedulable], key=member.record.name):
            event = found.record.event
            if isinstance(event, PodUnschedulable) and event.code == UNIT_NOT_PLACED:
                return event.message
    return ""


def _failed(pending: Sequence[PendingPod]) -> PendingPod | None:
    """Returns the member that the others waited for at the last attempt: it has reasons of its own."""
    tried = [each for each in pending if each.attempts and each.refused_by]
    own = [each for each in tried if any(one.code != UNIT_NOT_PLACED for one in each.refused_by)]
    return max(own, key=lambda each: each.last_attempt, default=None)


def _explanation(
    status: GangStatus, pending: dict[str, PendingPod], failed: PendingPod | None, condition: str
) -> GangExplanation:
    waiting, settings = list(pending.values()), status.settings
    last = max(waiting, key=lambda each: each.last_attempt, default=None)
    return GangExplanation(
        gang=status.name,
        state=status.state,
        summary=_summary(status, failed),
        declared_by="PodGroup" if status.record.has_pod_group else "pods",
        minimum=settings.minimum if settings else 0,
        total=settings.total if settings else 0,
        mode="" if settings is None else "Strict" if settings.is_strict else "NonStrict",
        match_policy=status.match_policy,
        groups=settings.groups if settings else (),
        exists=len(status.members),
        pending=status.count("pending"),
        placed=status.count("placed"),
        bound=status.count("bound"),
        needed=status.needed,
        place=min((each.place for each in waiting if each.place), default=0),
        since=min((each.since for each in waiting if each.since), default=""),
        attempts=max((each.attempts for each in waiting), default=0),
        last_attempt=last.last_attempt if last else "",
        next_attempt=last.next_attempt if last else "",
        failed_member=f"{failed.namespace}/{failed.name}" if failed and status.state != SATISFIED else "",
        nearest_domain=_nearest_domain(failed) if failed and status.state != SATISFIED else "",
        condition=condition,
        members=tuple(
            GangMember(
                member.record.name,
                member.stage or "other",
                member.node,
                waits.waits_for if (waits := pending.get(member.record.uid)) else "",
                waits.refused_by if waits else (),
            )
            for member in status.members
        ),
    )


def _nearest_domain(failed: PendingPod) -> str:
    """Returns the words in which the refusal of a member names the network domain that came closest."""
    details = (each.detail for each in failed.refused_by if each.code == NETWORK_DOMAIN_TOO_SMALL)
    return next((f"no {detail}" for detail in details), "")


def _summary(status: GangStatus, failed: PendingPod | None) -> str:
    there = f"{status.count('bound')} bound, {status.count('placed')} placed, {status.count('pending')} pending"
    if status.state == UNKNOWN:
        return text("GangUnknown", status.name)
    if status.state == IGNORED:
        return f"its pods are placed one by one, since {status.lacks}: {there}"
    if status.state == SATISFIED:
        return f"it needs no more pods: {there}"
    if status.state == INCOMPLETE:
        return f"it is not tried: {status.lacks}"
    if failed is None:
        return f"it needs {status.needed} more pods with a node, and is tried as a whole: {there}"
    return (
        f"it needs {status.needed} more pods with a node; {failed.namespace}/{failed.name} has none: {failed.waits_for}"
    )


def _lines(found: GangExplanation) -> Iterator[str]:
    yield f"Gang {found.gang}: {found.summary}"
    if found.state != UNKNOWN:
        yield (
            f"  declared by {found.declared_by}: {found.minimum} of {found.total} pods together, {found.mode}, "
            f"{found.match_policy}"
        )
    for fault in found.ignored:
        yield f"  ignored: {fault}"
    yield from (f"  check: {fault}" for fault in found.mistakes)
    if found.remedy:
        yield f"    do: {found.remedy}"
    if len(found.groups) > 1:
        yield f"  placed together with {', '.join(name for name in found.groups if name != found.gang)}"
    if found.since:
        yield f"  waits since {found.since}, {queue_place(found.place, 'place ')}"
    if found.attempts:
        later = f", again at {found.next_attempt} at the latest" if found.next_attempt else ""
        yield f"  tried {times(found.attempts)}, last at {found.last_attempt}{later}"
    if found.estimated_start is not None:
        yield f"  estimated start: {found.estimated_start.text}"
    if found.planned_start is not None:
        yield f"  planned start: {found.planned_start.text}"
    if found.nearest_domain:
        yield f"  network: {found.nearest_domain}"
    if found.condition:
        yield f"  condition of its pods: {found.condition}"
    if found.members:
        rows = [(each.name, each.stage, each.node or "-", below_heading(each.waits_for)) for each in found.members]
        yield ""
        yield from table_lines(("member", "stage", "node", "waits for"), rows)
