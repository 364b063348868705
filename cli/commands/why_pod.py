"""`koord why pod`: a decision explained from the log alone; no service needs to run."""

import time
from collections.abc import Iterable
from pathlib import Path

import click
from msgspec.structs import replace

from cli.scheduling.answer_from_log import answer
from cli.scheduling.ended_moves import failed_move
from cli.scheduling.move_under_way import move_under_way
from cli.scheduling.recorded_state import scheduler_state
from cli.terminal.object_name import namespaced_name
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format
from services.scheduler.explain.explain_pod import explain
from services.scheduler.explain.explanation_text import Explanation, render
from services.scheduler.explain.quota_shortage import quota_shortage
from services.scheduler.explain.rejected_quota import rejected_quota_of
from services.scheduler.plugins.registry import text
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.quota_reason_codes import waits_for_quota
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.quota_rejection import waits_for_rejected
from shared.errors import KoordError
from shared.events import EVENT_TYPES, RecordedEvent
from shared.events.cluster import PodObserved
from shared.events.quota import PodAttached, PodMoved, QuotaRejected
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.instants import SECOND, instant_text
from shared.log.admin.newest_events import newest_of_keys
from shared.log.codec import Codec
from shared.log.reader import LogReader, Row, recorded


class UnknownPod(KoordError):
    """The log has no event about a pod of this name."""


@click.command
@namespaced_name
@click.option("--uid", default="", help="Which pod of this name; the newest otherwise.")
@click.option("--language", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Of the reasons.")
@output_option
@folder_option
def pod(*, name: str, uid: str, language: str, output: Format, folder: Path) -> None:
    """Explain where a pod is placed, or why it waits.

    Shows the evaluation of the nodes by the cycle that decided (the number of nodes that each plugin rejected and why,
    the best few with each plugin's part of the score) and the pod's events since.
    """
    answer(folder, output, lambda log: explain_pod(log, name, uid, language), lambda found: render(found).splitlines())


async def explain_pod(
    log: LogReader, name: str, uid: str = "", language: str = "en", view: SchedulerState | None = None
) -> Explanation:
    """Explains a pod from its events, the cycles that they name, the last one that tried a pod that waits, and what it
    waits for at present.

    Args:
        view: the scheduler's State, where it was read before.

    Raises:
        UnknownPod: there are no events about it.
    """
    codec = Codec(list(EVENT_TYPES.values()))
    records = await _read(log, codec, key=name)
    decisions = {record.seq: it for record in records if isinstance(it := record.event, PodPlaced | PodUnschedulable)}
    for number in sorted({decided.cycle for decided in decisions.values()}):
        records += await _read(log, codec, context="scheduling", kind="CycleDecided", key=str(number))
    newest = decisions[max(decisions)] if decisions else None
    if isinstance(newest, PodUnschedulable):
        view = view or await scheduler_state(log)
        record = view.pods.get(newest.pod_uid)
        tried = {record.tried_seq} if record is not None and record.attempts else set()
        records += _decoded(codec, await log.rows_at("scheduling", tried))
    found = explain(records, uid, language)
    if not found.steps:
        raise await _unknown(log, name, uid, view)
    if found.status in ("waiting", "unschedulable"):
        is_untried = isinstance(newest, PodUnschedulable) and not newest.attempt
        return await _with_present_wait(log, found, view or await scheduler_state(log), language, is_untried=is_untried)
    if found.status in ("bound", "placed") and _counts_in_another_quota(records, found.pod_uid):
        found = _with_missing_quota(found, view or await scheduler_state(log))
    if found.status == "bound" and (move := await move_under_way(log, name, found.pod_uid)):
        return replace(found, summary=f"{found.summary}; {move}")
    if found.status == "bound" and (failed := await failed_move(log, name, found.pod_uid)):
        return replace(found, summary=f"{found.summary}; {failed}")
    return found


async def _unknown(log: LogReader, name: str, uid: str, view: SchedulerState | None) -> UnknownPod:
    """Returns the error about a pod without an event, with the pod that was probably meant."""
    from shared.closest_name import did_you_mean  # only here: the command starts sooner without it

    records = (view or await scheduler_state(log)).pods.values()
    there = {each.name for each in records if each.since and "/" in each.name}  # a Reservation's name has no namespace
    meant, of_uid = did_you_mean(name, there - {name}), f" with uid {uid}" if uid else ""
    return UnknownPod(
        f"the log has no event about pod {name}{of_uid}{meant}; `koord get pods -A` shows those there are"
    )


def _counts_in_another_quota(records: Iterable[RecordedEvent], uid: str) -> bool:
    """Returns True where the quota in which the pod counts is not the one that its label names."""
    label, quota = "", ""
    for record in records:
        match record.event:
            case PodObserved(object=observed) if observed.metadata.uid == uid:
                label = (observed.metadata.labels or {}).get(QUOTA_NAME, "")
            case PodAttached(pod_uid=own, quota=name) | PodMoved(pod_uid=own, quota=name) if own == uid:
                quota = name
    return bool(label and quota) and label != quota


def _with_missing_quota(found: Explanation, view: SchedulerState) -> Explanation:
    """Adds that the quota of the pod's label does not exist, so that its limits do not hold the pod."""
    from services.scheduler.explain.impossible_requests import missing_quota  # only here: as below

    record = view.pods.get(found.pod_uid)
    if record is None or record.pod_class is None:
        return found
    return replace(found, mistakes=tuple(missing_quota(view, record.pod_class)))


def present_first(found: Explanation, present: str) -> Explanation:
    """Returns the explanation with the present reason before that of the last cycle, where the two differ, and with the
    instant of that cycle.
    """
    if present in found.summary:
        return found
    at = f", at {instant_text(found.evaluation.now_ns // SECOND * SECOND)}" if found.evaluation is not None else ""
    return replace(found, summary=f"{present}; before{at}: {found.summary}")


async def _present_rejection(log: LogReader, record: PodRecord, state: str) -> str:
    """Returns what a pod that was refused for its rejected quota waits for at present; empty for another pod.

    Args:
        state: of the pod, in words, where its quota was corrected.
    """
    if not (name := rejected_quota_of(record)):
        return ""
    for one in await newest_of_keys(log.database, "quota", [QuotaRejected], {name}):
        assert isinstance(one.record.event, QuotaRejected), "the type that was read"
        if not one.record.event.reason:
            return f"its quota {name} is not rejected any more: {state}"
        return waits_for_rejected(name, one.record.event.reason)
    return ""


async def _with_present_wait(
    log: LogReader, found: Explanation, view: SchedulerState, language: str, *, is_untried: bool
) -> Explanation:
    """Adds what the pod waits for at present. A gang that is not complete is not tried, so no cycle names it."""
    # Only here: they read YAML, and without it the command starts sooner.
    from cli.scheduling.waiting_answers import shortage_of
    from services.scheduler.explain.probable_mistakes import probable_mistakes
    from services.scheduler.explain.waiting_order_config import rules_in_force
    from services.scheduler.explain.waiting_pods import waiting_pods

    rules = rules_in_force(view)
    waiting = next(
        (each for each in waiting_pods(view, rules, time.time_ns()) if each.record.uid == found.pod_uid), None
    )
    if waiting is None:
        return found
    seen, state = set(found.ignored), waiting.state
    mistakes = probable_mistakes(view, rules, waiting.record)
    found = replace(found, mistakes=tuple(each for each in mistakes if each.partition(": ")[2] not in seen))
    words = text(state.code, state.detail, language)
    if present := await _present_rejection(log, waiting.record, words):
        return present_first(found, present)
    is_first = not any(step.event.startswith("scheduling/") for step in found.steps)
    if is_first or (is_untried and found.evaluation is None):
        return replace(found, summary=words)
    if state.code in ("GangUnknown", "GangIncomplete"):
        return replace(found, summary=f"{found.summary}; {words}")
    shortage = None if waits_for_quota(waiting.record.reasons) else quota_shortage(view, found.pod_uid)
    if shortage is not None:
        return replace(found, summary=f"{found.summary}; {shortage_of(f'its quota {shortage.quota}', shortage)}, too")
    return found


async def _read(
    log: LogReader, codec: Codec, *, key: str, context: str | None = None, kind: str | None = None
) -> list[RecordedEvent]:
    return _decoded(codec, [row async for row in log.rows(context=context, kind=kind, key=key)])


def _decoded(codec: Codec, rows: Iterable[Row]) -> list[RecordedEvent]:
    return [recorded(row, event) for row in rows if (event := codec.one(row.type, row.data)) is not None]
