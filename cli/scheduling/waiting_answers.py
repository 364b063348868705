"""The waits of pods, in words: the reasons in the State, with the counts of nodes from the cycles that refused them."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from cli.scheduling.gang_start import StartEstimate, start_estimate
from cli.scheduling.recorded_state import scheduler_state
from cli.terminal.amounts import human_amounts
from cli.terminal.durations import instant_of, second
from services.scheduler.explain.gang_status import gang_status
from services.scheduler.explain.impossible_requests import NO_NODES
from services.scheduler.explain.invalid_reservations import RejectedReservation, rejected_reservations
from services.scheduler.explain.quota_shortage import QuotaShortage, quota_shortage
from services.scheduler.explain.rejected_quota import rejected_quota_of
from services.scheduler.explain.waiting_order_config import QueueRules, rules_in_force
from services.scheduler.explain.waiting_pods import WaitingPod, waiting_pods
from services.scheduler.plugins.registry import text
from services.scheduler.state.quota_reason_codes import PLUGIN as ELASTIC_QUOTA
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.quota_rejection import waits_for_rejected
from shared.events.quota import QuotaRejected
from shared.events.scheduling import ClassEvaluated, CycleDecided
from shared.kube.instants import SECOND, BadTime, instant_ns, instant_text
from shared.log.admin.newest_events import newest_of_keys
from shared.log.codec import Codec
from shared.log.reader import LogReader

CONTEXT = "scheduling"

MOST_ESTIMATED = 20
"""Gangs whose start is estimated in a list, the first ones of the queue: each takes up to a tenth of a second."""


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reason of the last attempt.

    Attributes:
        nodes: that were rejected for it; 0 for a reason of the pod as a whole.
    """

    plugin: str
    code: str
    text: str
    detail: str = ""
    nodes: int = 0


class PendingPod(msgspec.Struct, frozen=True):
    """A pod without a node.

    Attributes:
        kind: `Pod` or `Reservation`, which is placed like a pod and has no namespace.
        place: from 1, in the order in which pods are tried; 0 for a pod that is not in the queue.
        state: code of the reason for which it is not tried at present, or `InQueue`; `Rejected` for a Reservation that
            cannot be placed as it is written.
        waits_for: the same in words, with the plugin, quota, gang or Reservation.
        since: instant of its first observation; empty where the log no longer has it. Of a rejected Reservation its
            creation.
        nodes: number of nodes at the last attempt; refused_by: its reasons.
        short: what its quota lacks for it: resource -> amount.
        last_attempt, next_attempt: instants; empty for none.
        estimated_start: of its gang; None for a pod without one, for a gang that does not wait as a whole, and behind
            the first MOST_ESTIMATED gangs.
    """

    namespace: str
    name: str
    pod_uid: str
    kind: str
    place: int
    state: str
    waits_for: str
    since: str
    quota: str
    gang: str
    priority: int
    sub_priority: int
    scheduler: str
    attempts: int
    last_attempt: str
    next_attempt: str
    nominated_node: str
    nodes: int
    refused_by: tuple[Refusal, ...]
    short: dict[str, int]
    estimated_start: StartEstimate | None = None


def queue_place(place: int, before: str = "") -> str:
    """Returns a place in words: `3 in the queue`."""
    return f"{before}{place} in the queue" if place else "not in the queue"


async def read_pending(log: LogReader, only: Iterable[str] | None = None) -> list[PendingPod]:
    """Reads the pods and Reservations without a node, in the order of the queue, rejected Reservations last.

    Args:
        only: their names, `namespace/name`; all of them without it.
    """
    view = await scheduler_state(log)
    rules, now_ns = rules_in_force(view), time.time_ns()
    found = await pending_in(log, view, waiting_pods(view, rules, now_ns), only)
    names = None if only is None else frozenset(only)
    rejected = [each for each in rejected_reservations(view) if not each.node and (names is None or each.name in names)]
    return [*_with_estimates(found, view, rules, now_ns), *map(_rejected, rejected)]


def _rejected(each: RejectedReservation) -> PendingPod:
    return PendingPod(
        namespace="",
        name=each.name,
        pod_uid=each.uid,
        kind="Reservation",
        place=0,
        state="Rejected",
        waits_for=f"it is not placed: {each.problem}",
        since=_instant_or_nothing(each.created),
        quota="",
        gang="",
        priority=0,
        sub_priority=0,
        scheduler="",
        attempts=0,
        last_attempt="",
        next_attempt="",
        nominated_node="",
        nodes=0,
        refused_by=(),
        short={},
    )


def _instant_or_nothing(text: str) -> str:
    """Returns an instant that an object has; empty for a text that is none."""
    try:
        return instant_text(instant_ns(text) // SECOND * SECOND)
    except BadTime:
        return ""


def _with_estimates(
    found: Sequence[PendingPod], view: SchedulerState, rules: QueueRules, now_ns: int
) -> list[PendingPod]:
    """Returns the pods with the estimated starts of their gangs."""
    gangs = list(dict.fromkeys(each.gang for each in found if each.gang and each.place))[:MOST_ESTIMATED]
    statuses = {gang: gang_status(view, rules, gang) for gang in gangs}
    starts = {gang: start_estimate(view, status, now_ns) for gang, status in statuses.items() if status is not None}
    return [msgspec.structs.replace(each, estimated_start=starts.get(each.gang)) for each in found]


async def pending_in(
    log: LogReader, view: SchedulerState, found: Sequence[WaitingPod], only: Iterable[str] | None = None
) -> list[PendingPod]:
    """Returns the waiting pods of a State that was read."""
    if only is not None:
        names = frozenset(only)
        found = [each for each in found if each.record.name in names]
    seen = await log.appended_at("cluster", {each.record.since for each in found})
    attempts = {each.record.tried_seq for each in found if each.record.attempts}
    evaluations = await _evaluations(log, attempts)
    shown = [_shown(view, each, seen, evaluations.get(each.record.uid)) for each in found]
    return await _with_rejected_quotas(log, shown, {each.record.uid: rejected_quota_of(each.record) for each in found})


async def _with_rejected_quotas(
    log: LogReader, shown: Sequence[PendingPod], quota_of: Mapping[str, str]
) -> list[PendingPod]:
    """Returns the pods; those of rejected quotas have that quota, and the reason in the words of the other commands.

    Args:
        quota_of: uid -> the rejected quota that the pod names; empty without one.
    """
    names = {name for name in quota_of.values() if name}
    reasons = {}
    for one in await newest_of_keys(log.database, "quota", [QuotaRejected], names):
        assert isinstance(one.record.event, QuotaRejected), "the type that was read"
        reasons[one.record.event.quota] = one.record.event.reason
    return [
        msgspec.structs.replace(each, quota=name, waits_for=waits_for_rejected(name, reasons[name]))
        if (name := quota_of[each.pod_uid]) and reasons.get(name)
        else each
        for each in shown
    ]


async def _evaluations(log: LogReader, seqs: set[int]) -> Mapping[str, ClassEvaluated]:
    """Returns uid -> the evaluation of its class, of pods that these cycles took."""
    codec = Codec([CycleDecided])
    found: dict[str, ClassEvaluated] = {}
    for row in await log.rows_at(CONTEXT, seqs):
        cycle = codec.one(row.type, row.data)
        if isinstance(cycle, CycleDecided):
            found |= {each.pod_uid: cycle.classes[each.class_index] for each in cycle.pods if not each.node}
    return found


def _shown(
    view: SchedulerState, each: WaitingPod, seen: Mapping[int, datetime], evaluated: ClassEvaluated | None
) -> PendingPod:
    record, pod_class = each.record, each.pod_class
    refused = _refusals(each, evaluated) if record.attempts else ()
    shortage = quota_shortage(view, record.uid) if each.state.code in _TRIED and record.attempts else None
    namespace, _, name = record.name.rpartition("/")
    return PendingPod(
        namespace=namespace,
        name=name,
        pod_uid=record.uid,
        kind="Reservation" if pod_class.reserves else "Pod",
        place=each.place,
        state=each.state.code,
        waits_for=_words(each, refused, evaluated.nodes if evaluated else 0, shortage, has_nodes=bool(view.nodes)),
        since=second(seen[record.since]) if record.since in seen else "",
        quota=each.quota,
        gang=each.gang,
        priority=pod_class.priority,
        sub_priority=pod_class.sub_priority,
        scheduler=pod_class.scheduler,
        attempts=record.attempts,
        last_attempt=instant_of(record.tried_ns) if record.attempts else "",
        next_attempt=instant_of(each.next_ns) if each.next_ns else "",
        nominated_node=record.nominated,
        nodes=evaluated.nodes if evaluated else 0,
        refused_by=refused,
        short=dict(shortage.amounts) if shortage else {},
    )


def _refusals(each: WaitingPod, evaluated: ClassEvaluated | None) -> tuple[Refusal, ...]:
    """Returns the reasons of the last attempt; without counts where the log no longer has the cycle."""
    if evaluated is None:
        return tuple(Refusal(plugin, code, text(code)) for plugin, code in each.record.reasons)
    return tuple(
        Refusal(one.plugin, one.code, text(one.code, one.detail), one.detail, one.nodes) for one in evaluated.rejected
    )


_TRIED = ("AwaitsQuota", "BackingOff", "AwaitsChange", "InQueue")
"""States of pods that wait for what refused them at their last attempt."""


def _words(
    each: WaitingPod, refused: Sequence[Refusal], nodes: int, shortage: QuotaShortage | None, *, has_nodes: bool
) -> str:
    """Returns what a pod waits for: its quota and the plugins that refused it, else the reason for which it is not
    tried.
    """
    state, record = each.state, each.record
    if not has_nodes and state.code in _TRIED and record.attempts:
        return f"{NO_NODES}: it is tried again once there is one"
    if state.code in _TRIED and refused:
        parts = [_refusal(one, nodes) for one in refused]
        if shortage is not None and any(one.plugin == ELASTIC_QUOTA for one in refused):
            parts += [f"short of {human_amounts(shortage.amounts)}"] if shortage.amounts else []
        elif shortage is not None:
            parts.insert(0, f"{ELASTIC_QUOTA}: {shortage_of(shortage.quota, shortage)}")
        if record.nominated:
            parts.append(f"victims end on {record.nominated}")
        return "; ".join(parts)
    if record.refusals and state.code in ("BackingOff", "InQueue"):
        return f"its placement on {record.placed_node} was refused; it is tried again"
    if state.code == "SchedulingGated":
        return f"scheduling gates: {state.detail}"
    return text(state.code, state.detail)


def shortage_of(quota: str, shortage: QuotaShortage) -> str:
    """Returns a sentence about a quota that has no capacity for a pod.

    Args:
        quota: how the sentence names it.
    """
    if not shortage.amounts:
        return f"pods that must not be preempted use the min of {quota}"
    return f"{quota} is short of {human_amounts(shortage.amounts)}"


def below_heading(waits_for: str) -> str:
    """Returns what a pod waits for, as it reads below the heading `waits for`."""
    return waits_for.removeprefix("it waits for ")


def _refusal(one: Refusal, nodes: int) -> str:
    counted = f" ({one.nodes} of {nodes} nodes)" if one.nodes and nodes else ""
    return f"{one.plugin}: {one.text}{counted}" if one.plugin else f"{one.text}{counted}"
