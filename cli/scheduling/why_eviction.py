"""`koord why eviction`: who requested the eviction of a pod, for what reason, and what became of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from cli.scheduling.answer_from_log import answer
from cli.scheduling.ended_moves import end_text, ended_moves, pod_of_job, state_of
from cli.scheduling.why_eviction_case import ExplainedCase, case_lines, explain_case
from cli.terminal.durations import instant_of
from cli.terminal.object_name import namespaced_name
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format
from shared.errors import KoordError
from shared.events import Event, RecordedEvent
from shared.events.cluster import (
    EvictionFailed,
    EvictionPaused,
    EvictionRejected,
    EvictionsHeld,
    EvictionsReleased,
    EvictionSuppressed,
    PodDeleted,
    PodEvicted,
)
from shared.events.intents import EvictionRequested
from shared.events.migration import MigrationEnded
from shared.events.nodes import AgentEvictionRequested
from shared.log.admin.newest_events import newest
from shared.log.codec import Codec
from shared.log.reader import LogReader, recorded

REQUESTERS = {
    "scheduling": "the scheduler",
    "quota": "the quota ledger",
    "slo": "the SLO controller",
    "descheduling": "the descheduler",
    "cluster": "the gateway",
}
"""Context of a request -> who writes it; agents' are `nodes-*`."""


class NoEviction(KoordError):
    """The log has no eviction of a pod."""


class EvictionStep(msgspec.Struct, frozen=True):
    """An event of an eviction: `context/seq`, instant of the append, type, and what happened."""

    event: str
    at: str
    type: str
    text: str


class EvictionExplanation(msgspec.Struct, frozen=True):
    """The newest eviction of a pod.

    Attributes:
        state: `evicted`, `waiting` (for budget, or held), `requested`, `rejected`, `failed`, `suppressed`, or `gone`
            where the pod ended before the request was carried out. Of a PodMigrationJob: `moved`, `evicted`, `failed`
            or `aborted`.
        requested_by: the service or agent.
        reason: of the request.
        held_by: the operator or `breaker` that holds all evictions at present; empty for none.
        steps: of all evictions of pods of this name, oldest first.
    """

    pod: str
    pod_uid: str
    state: str
    summary: str
    requested_by: str
    reason: str
    held_by: str
    steps: tuple[EvictionStep, ...]


def _by(record: RecordedEvent) -> str:
    return REQUESTERS.get(record.context, "the agent of its node")


def _evicted(event: PodEvicted) -> str:
    if event.node:
        return f"it is evicted from {event.node}"
    return "it is evicted" if event.without_node else "it was gone before the eviction"


_TEXTS: Mapping[type[Event], Callable[[RecordedEvent, Any], tuple[str, str]]] = {
    AgentEvictionRequested: lambda _, event: ("requested", f"the agent of its node wants it gone: {event.reason}"),
    EvictionRequested: lambda record, event: ("requested", f"{_by(record)} requests its eviction: {event.reason}"),
    EvictionPaused: lambda _, event: ("waiting", f"the eviction waits: {event.reason}"),
    PodEvicted: lambda _, event: ("evicted", _evicted(event)),
    EvictionRejected: lambda _, event: ("rejected", f"the eviction is rejected: {event.reason}"),
    EvictionFailed: lambda _, event: ("failed", f"the eviction failed: {event.reason}"),
    EvictionSuppressed: lambda _, _event: ("suppressed", "shadow mode: nothing was written"),
    MigrationEnded: lambda _, event: (state_of(event), end_text(event)),
}  # fmt: skip
"""Event type -> state after it, and its text."""


@click.command
@namespaced_name
@output_option
@folder_option
def eviction(*, name: str, output: Format, folder: Path) -> None:
    """Explain who requested the eviction of a pod, why, and what became of it.

    Also which budget, or whose hold, it waits for, and why a PodMigrationJob of the pod failed. NAME may be a job or a
    case of the descheduler (koord get evictions): the cause of a case, its victims with their destinations, the pods
    that stay, and the benefit measured afterwards.
    """

    async def explain(log: LogReader) -> EvictionExplanation | ExplainedCase:
        short = name.partition("/")[2]
        if case := await explain_case(log, short):
            return case
        pod = await pod_of_job(log, short)
        try:
            return await explain_eviction(log, pod or name)
        except NoEviction as error:
            if not pod:
                raise
            raise NoEviction(
                f"PodMigrationJob {short} has evicted nothing yet; `koord why pod {pod}` shows how far it is"
            ) from error

    def lines(found: EvictionExplanation | ExplainedCase) -> Iterator[str]:
        return case_lines(found) if isinstance(found, ExplainedCase) else _lines(found)

    answer(folder, output, explain, lines)


def _lines(found: EvictionExplanation) -> Iterator[str]:
    yield f"{found.pod}{f' ({found.pod_uid})' if found.pod_uid else ''}: {found.summary}"
    if found.held_by:
        yield f"  all evictions are held by {found.held_by}; `koord evictions release` ends that"
    yield ""
    for step in found.steps:
        yield f"{step.at}  {step.event:<18} {step.text}"


async def explain_eviction(log: LogReader, name: str) -> EvictionExplanation:
    """Explains the newest eviction of a pod of this name.

    Raises:
        NoEviction: there is none in the log.
    """
    codec = Codec([*_TEXTS, PodDeleted])
    rows = [row async for row in log.rows(key=name)]
    records = [recorded(row, event) for row in rows if (event := codec.one(row.type, row.data)) is not None]
    records += [
        record
        for record in await ended_moves(log, name)
        if isinstance(record.event, MigrationEnded) and state_of(record.event)
    ]
    found = explained(name, records, await _held_by(log))
    if found is None:
        raise NoEviction(
            f"the log has no eviction of pod {name}; `koord get evictions` and `koord events --type EvictionRequested` list some"
        )
    return found


def explained(name: str, records: Sequence[RecordedEvent], held_by: str) -> EvictionExplanation | None:
    """Explains the newest eviction from the events with a pod's name; None where there is none.

    Args:
        held_by: the operator or breaker that holds all evictions; empty for none.
    """
    ordered = sorted(records, key=lambda record: (record.at_ns, record.cause is not None))
    steps: list[EvictionStep] = []
    state, reason, by, uid = "", "", "", ""
    for record in ordered:
        event: Any = record.event
        if isinstance(event, PodDeleted):
            if event.pod_uid == uid and state in ("requested", "waiting"):
                state = "gone"
            continue
        state, words = _TEXTS[type(event)](record, event)
        uid = str(getattr(event, "pod_uid", "")) or uid
        if isinstance(event, EvictionRequested):
            reason, by = event.reason, _by(record)
        steps.append(EvictionStep(f"{record.context}/{record.seq}", instant_of(record.at_ns), event.type_name(), words))
    if not steps:
        return None
    holds = held_by if state in ("requested", "waiting") else ""
    summary = "it ended before the eviction was carried out" if state == "gone" else steps[-1].text
    why = f"; {by} requested it: {reason}" if by and reason not in summary else ""
    return EvictionExplanation(name, uid, state, summary + why, by, reason, holds, tuple(steps))


async def _held_by(log: LogReader) -> str:
    """Returns who holds all evictions at present; empty for nobody."""
    if "cluster" not in await log.contexts():
        return ""
    for found in await newest(log.database, "cluster", [EvictionsHeld, EvictionsReleased]):
        event = found.record.event
        return event.by if isinstance(event, EvictionsHeld) else ""
    return ""
