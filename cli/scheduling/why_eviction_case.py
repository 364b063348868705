"""`koord why eviction CASE`: a case of the descheduler: trigger, victims, alternatives, destinations, and the benefit."""

from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from cli.kinds.evictions import CONTEXT, gains, sizes
from cli.terminal.durations import instant_of
from services.descheduler.plugins.waiting_units import named_unit
from shared.events import RecordedEvent
from shared.events.cluster import EvictionFailed, EvictionPaused, EvictionRejected, ObjectObserved, PodEvicted
from shared.events.descheduling import (
    Cause,
    EvictionCaseClosed,
    EvictionCaseOpened,
    Victim,
)
from shared.kube.resource_names import MIGRATION_JOBS
from shared.log.codec import Codec
from shared.log.reader import LogReader, recorded

SUCCEEDED = "Succeeded"
"""Phase of a job whose pod was moved; its case is open until the nodes have reported again."""

MOVED = "moved"
EVICTED = "evicted"
"""Outcome of a victim whose successor was not seen."""


class ExplainedVictim(msgspec.Struct, frozen=True):
    """A pod that leaves its node.

    Attributes:
        destination: that was found for it; one that was only evicted never went there.
        state: of its move: `moved`, `evicted`, `stayed`, or the phase of its job.
        why: what holds it up, why it stayed, or what is known of a successor that was not awaited; empty for neither.
        ended: it never runs again, and is removed.
        gang: whose victims leave all together, or stay all; empty for none.
    """

    pod: str
    node: str
    destination: str
    reason: str
    job: str
    state: str
    why: str
    ended: bool = False
    gang: str = ""


class ExplainedCase(msgspec.Struct, frozen=True):
    """A case.

    Attributes:
        causes: what is wrong, measured.
        passed_over: pods that stay, each with the reason.
        gain: expected, and measured afterwards.
        unit: for which the victims leave, and what became of it; empty for none.
    """

    case: str
    at: str
    plugin: str
    profile: str
    state: str
    causes: tuple[str, ...]
    victims: tuple[ExplainedVictim, ...]
    passed_over: tuple[str, ...]
    passed_over_count: int
    gain: tuple[str, ...]
    budget: dict[str, int]
    unit: str = ""


async def explain_case(log: LogReader, name: str) -> ExplainedCase | None:
    """Explains a case; None where there is none of this id."""
    if CONTEXT not in await log.contexts():
        return None
    codec = Codec([EvictionCaseOpened, EvictionCaseClosed])
    records = [each async for each in _records(log, codec, CONTEXT, name)]
    opened = next((each for each in records if isinstance(each.event, EvictionCaseOpened)), None)
    if opened is None:
        return None
    assert isinstance(opened.event, EvictionCaseOpened)
    ends = [each.event for each in records if isinstance(each.event, EvictionCaseClosed)]
    closed = ends[-1] if ends else None
    victims = [await _victim(log, victim, closed) for victim in opened.event.victims]
    return explained(opened, closed, victims)


def explained(
    opened: RecordedEvent, closed: EvictionCaseClosed | None, victims: Sequence[ExplainedVictim]
) -> ExplainedCase:
    """Returns the explanation of a case."""
    case = opened.event
    assert isinstance(case, EvictionCaseOpened)
    return ExplainedCase(
        case=case.case,
        at=instant_of(opened.at_ns),
        plugin=case.plugin,
        profile=case.profile,
        state="dry run" if case.dry_run else closed.outcome if closed else "open",
        causes=(
            *_waits(case),
            *(
                f"{each.node}: {_measure(each)} is {sizes(each.resource, ' of ', each.measured, each.capacity)}, "
                f"{_predicted(each)}above {sizes(each.resource, '', each.limit)}"
                for each in case.causes
            ),
        ),
        victims=tuple(victims),
        passed_over=tuple(f"{each.pod} on {each.node}: {each.why}" for each in case.passed_over),
        passed_over_count=case.passed_over_count,
        gain=gains(case, closed),
        budget=case.budget,
        unit=_unit(case, closed),
    )


def _waits(case: EvictionCaseOpened) -> Iterator[str]:
    """Yields the trigger of a case for a waiting unit."""
    if (unit := case.unit) is not None:
        nodes = ", ".join(dict.fromkeys(each for each in unit.nodes.values() if each))
        yield (
            f"{named_unit(unit.kind, unit.name)} has waited for {unit.wait_s} s, minWaitSeconds is {unit.limit_s}; "
            f"it fits on {nodes} after the moves"
        )


def _unit(case: EvictionCaseOpened, closed: EvictionCaseClosed | None) -> str:
    if case.unit is None or case.dry_run:
        return ""
    within = f"open for {case.unit.admit_within_s} s after the last move"
    return f"{named_unit(case.unit.kind, case.unit.name)}: {(closed.unit if closed else '') or within}"


def _measure(cause: Cause) -> str:
    """Returns what was measured: LowNodeLoad adds up the pods and the system of a node."""
    of = {"node": "of its pods and system together", "prod": "of its prod pods together"}.get(cause.scope)
    return f"{cause.resource} {of}" if of else f"{cause.scope} {cause.resource}"


def _predicted(cause: Cause) -> str:
    return f"with a predicted peak of {sizes(cause.resource, '', cause.predicted)}, " if cause.predicted else ""


def case_lines(found: ExplainedCase) -> Iterator[str]:
    """Yields the lines of an explanation."""
    yield f"{found.case}: {found.plugin} of profile {found.profile}, {found.at}, {found.state}"
    for cause in found.causes:
        yield f"  cause     {cause}"
    for each in found.victims:
        state = f"{each.state}: {each.why}" if each.why else each.state
        if each.ended:
            yield f"  victim    {each.pod}, which has ended, is removed from {each.node} ({state})"
            continue
        to = "" if each.state == EVICTED else f" for {each.destination or 'no known node'}"
        unit = f" with its gang {each.gang}" if each.gang else ""
        yield f"  victim    {each.pod} leaves {each.node}{to}{unit} ({state})"
    if found.unit:
        yield f"  unit      {found.unit}"
    for line in found.gain if not found.unit else ():
        yield f"  gain      {line}"
    for name, left in found.budget.items():
        yield f"  budget    {name}: {left} left"
    yield from _stays(found.passed_over)
    if found.passed_over_count > len(found.passed_over):
        yield f"  stays     {found.passed_over_count - len(found.passed_over)} more pods"


def _stays(passed_over: Sequence[str]) -> Iterator[str]:
    """Yields a line for each reason for which pods stay."""
    by_reason: dict[str, list[str]] = {}
    for line in passed_over:
        pod, _, why = line.partition(": ")
        by_reason.setdefault(why, []).append(pod)
    for why, pods in by_reason.items():
        yield (
            f"  stays     {pods[0]}: {why}"
            if len(pods) == 1
            else (f"  stays     {len(pods)} pods: {why}: {', '.join(pods)}")
        )


async def _victim(log: LogReader, victim: Victim, closed: EvictionCaseClosed | None) -> ExplainedVictim:
    """Returns a victim as it is now: by the end of its case, else by its job and by the outcome of its eviction."""
    state, why = "waiting", ""
    end = next((each for each in closed.victims if each.pod == victim.pod), None) if closed else None
    if end is not None:
        state, why = end.outcome, end.why
    elif victim.job:
        async for record in _records(log, Codec([ObjectObserved]), "cluster", victim.job):
            event = record.event
            if isinstance(event, ObjectObserved) and event.resource == MIGRATION_JOBS:
                status = event.object.get("status") or {}
                state, why = str(status.get("phase") or "waiting"), str(status.get("message") or "")
        kinds = Codec([EvictionPaused, EvictionRejected, EvictionFailed, PodEvicted])
        async for record in _records(log, kinds, "cluster", victim.pod):
            event = record.event
            if isinstance(event, EvictionPaused | EvictionRejected | EvictionFailed):
                why = event.reason
        if state == SUCCEEDED:  # its message is of the binding, and nothing holds it up any more
            state, why = MOVED, ""
    return ExplainedVictim(
        victim.pod,
        victim.node,
        victim.destination,
        victim.reason,
        victim.job,
        state,
        why,
        victim.ended,
        victim.gang,
    )


async def _records(log: LogReader, codec: Codec, context: str, key: str) -> AsyncIterator[RecordedEvent]:
    async for row in log.rows(context=context, key=key):
        event = codec.one(row.type, row.data)
        if event is not None:
            yield recorded(row, event)
