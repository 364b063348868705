"""`koord why reservation`: where a Reservation is and who uses it, or what keeps it from every node."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from cli.scheduling.answer_from_log import answer
from cli.scheduling.operating_pods import operating_pods
from cli.scheduling.recorded_state import scheduler_state
from cli.scheduling.waiting_answers import PendingPod, Refusal, pending_in, queue_place
from cli.simulated_cluster import edit_advice, is_simulated
from cli.terminal.amounts import human_amounts, readable_amounts
from cli.terminal.durations import instant_of, times
from cli.terminal.object_name import cluster_name
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format
from services.scheduler.explain.probable_mistakes import probable_mistakes
from services.scheduler.explain.waiting_order_config import rules_in_force
from services.scheduler.explain.waiting_pods import WaitingPod, waiting_pods
from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.watched_api_resources import RESERVATIONS
from shared.closest_name import did_you_mean
from shared.domain.reservation import (
    PENDING,
    Reservation,
    UnreadableReservation,
    expires_ns,
    problem_of,
    read_reservation,
    requests_text,
)
from shared.domain.reservation_owners import matches_one
from shared.errors import KoordError
from shared.events import RecordedEvent
from shared.events.scheduling import PlacementReleased, PlacementReserved, ReservationUnschedulable
from shared.first_names import first_names
from shared.kube.instants import BadTime, instant_text
from shared.log.codec import Codec
from shared.log.reader import LogReader, recorded

_STEPS = (PlacementReserved, PlacementReleased, ReservationUnschedulable)


class UnknownReservation(KoordError):
    """The log has no Reservation of this name."""

    def __init__(self, name: str, view: SchedulerState) -> None:
        there = [*sorted(view.objects.get(RESERVATIONS, {})), *operating_pods(view)]
        known = f"known: {first_names(there, 10)}" if there else "there are none"
        super().__init__(f"there is no Reservation {name!r}{did_you_mean(name, there)}; {known}")


class HoldStep(msgspec.Struct, frozen=True):
    """An event about the held capacity: `context/seq`, the instant of its append, and what happened."""

    event: str
    at: str
    text: str


class ReservationExplanation(msgspec.Struct, frozen=True):
    """The state of a Reservation, or of a pod in operating mode.

    Attributes:
        reservation: its name; of such a pod, `pod/NAMESPACE/NAME`.
        phase: of the object, `Pending` before the first.
        summary: one sentence.
        holds: resource -> amount that it holds, or is to hold once it has a node, cpu in milli-cores, memory in bytes.
        used: the part that its pods use, as its status has it; a pod in operating mode has no such status.
        used_by: pods that use it, `namespace/name`.
        waiting: pods without a node that its owners name.
        expires: instant; empty for never.
        place: in the queue; 0 where it is not there. since: instant of its first observation; empty where unknown.
        refused_by: the plugins that rejected nodes for it at its last attempt.
        steps: events about its capacity, oldest first.
        mistakes: of one that waits, what is probably misspelt.
    """

    reservation: str
    phase: str
    summary: str
    node: str
    holds: dict[str, int]
    used: dict[str, int]
    used_by: tuple[str, ...]
    waiting: tuple[str, ...]
    allocate_once: bool
    policy: str
    expires: str
    place: int
    since: str
    attempts: int
    last_attempt: str
    next_attempt: str
    refused_by: tuple[Refusal, ...]
    steps: tuple[HoldStep, ...]
    mistakes: tuple[str, ...] = ()


@click.command
@cluster_name()
@output_option
@folder_option
def reservation(*, name: str, output: Format, folder: Path) -> None:
    """Explain where a Reservation is and who uses it, or what keeps it from every node.

    A pod in operating mode is named pod/NAMESPACE/NAME.

    Shows the plugins that rejected nodes for it, its place in the queue, the pods that wait for it, and its end.
    """

    async def explained(log: LogReader) -> ReservationExplanation:
        return await explain_reservation(log, await scheduler_state(log), name)

    answer(folder, output, explained, _lines)


async def explain_reservation(log: LogReader, view: SchedulerState, name: str) -> ReservationExplanation:
    """Explains a Reservation by its name, or a pod in operating mode by `pod/NAMESPACE/NAME`.

    Raises:
        UnknownReservation: the log has none.
    """
    operating = operating_pods(view).get(name)
    body = operating.body if operating else view.objects.get(RESERVATIONS, {}).get(name)
    if body is None:
        raise UnknownReservation(name, view)
    try:
        found = read_reservation(body)
    except UnreadableReservation as error:
        command = edit_advice("reservation", name, simulated=await is_simulated(log.database))
        raise KoordError(f"Reservation {name} cannot be read: {error.fault}; correct the field: {command}") from error
    uid = found.metadata.uid
    rules = rules_in_force(view)
    waiting = waiting_pods(view, rules, time.time_ns())
    unplaced = [each for each in waiting if each.record.uid == uid]
    own = await pending_in(log, view, unplaced)
    mistakes = tuple(fault for each in unplaced for fault in probable_mistakes(view, rules, each.record))
    users = users_of(found) or (operating.placed if operating else ())
    steps = await _steps(log, found)
    explained = _explanation(found, own[0] if own else None, users, _owners(view, found, waiting), steps)
    return replace(explained, reservation=name, mistakes=mistakes)


def _owners(view: SchedulerState, found: Reservation, waiting: list[WaitingPod]) -> tuple[str, ...]:
    """Returns the pods without a node that a Reservation's owners name."""
    return tuple(
        each.record.name
        for each in waiting
        if not each.pod_class.reserves
        and matches_one(
            found.spec.owners,
            each.pod_class.namespace,
            each.pod_class.labels,
            view.identities.get(each.record.uid),
        )
    )


async def _steps(log: LogReader, found: Reservation) -> tuple[HoldStep, ...]:
    codec = Codec(list(_STEPS))
    there = "scheduling" in await log.contexts()
    rows = [row async for row in log.rows(context="scheduling", key=found.metadata.name)] if there else []
    records = [recorded(row, event) for row in rows if (event := codec.one(row.type, row.data)) is not None]
    return tuple(
        HoldStep(f"{record.context}/{record.seq}", instant_of(record.at_ns), step)
        for record in records
        if (step := _step(record, found.metadata.uid))
    )


def _step(record: RecordedEvent, uid: str) -> str:
    match record.event:
        case PlacementReserved(holder_uid=holder, node=node, cycle=cycle) if holder == uid:
            return f"cycle {cycle} holds its capacity on {node}"
        case PlacementReleased(holder_uid=holder, node=node, reason=reason) if holder == uid:
            return f"its capacity on {node} is free again: {reason}"
        case ReservationUnschedulable(reservation_uid=holder, cycle=cycle, message=message) if holder == uid:
            return f"cycle {cycle} found no node: {message}"
    return ""


def _explanation(
    found: Reservation,
    pending: PendingPod | None,
    users: tuple[str, ...],
    waiting: tuple[str, ...],
    steps: tuple[HoldStep, ...],
) -> ReservationExplanation:
    problem = problem_of(found)
    return ReservationExplanation(
        reservation=found.metadata.name,
        phase=found.status.phase or PENDING,
        summary=_summary(found, pending, users, problem),
        node=found.status.node_name,
        holds=held_amounts(found, problem),
        used=readable_amounts(found.status.allocated),
        used_by=users,
        waiting=() if found.is_ended else waiting,
        allocate_once=found.allocates_once,
        policy=found.policy or "Default",
        expires=expires_at(found),
        place=pending.place if pending else 0,
        since=pending.since if pending else "",
        attempts=pending.attempts if pending else 0,
        last_attempt=pending.last_attempt if pending else "",
        next_attempt=pending.next_attempt if pending else "",
        refused_by=pending.refused_by if pending else (),
        steps=steps,
    )


def held_amounts(found: Reservation, problem: str) -> dict[str, int]:
    """Returns what a Reservation holds, or is to hold; nothing where its `problem` keeps it from being placed."""
    return readable_amounts(found.status.allocatable or ({} if problem else requests_text(found)))


def users_of(found: Reservation) -> tuple[str, ...]:
    """Returns the pods that use it, `namespace/name`."""
    return tuple(f"{owner.namespace}/{owner.name}" for owner in found.status.current_owners)


def _summary(found: Reservation, pending: PendingPod | None, users: tuple[str, ...], problem: str) -> str:
    status = found.status
    if found.is_ended:
        ready: Any = next((each for each in status.conditions if each.type == "Ready"), None)
        if ready is None:
            return f"it has ended: {status.phase}"
        # It was ready before: the newer of the two instants is that of its end.
        at = max(ready.last_transition_time or "", ready.last_probe_time or "")
        return f"it has ended: {ready.reason or status.phase}{at and f' at {at}'}"
    if problem:
        return f"it is not placed: {problem}"
    if found.is_available:
        return f"it holds capacity on {status.node_name}, used by {_pods(len(users))}"
    if pending is None:
        return "no cycle has tried it yet"
    return pending.waits_for if pending.waits_for.startswith("it waits") else f"it waits: {pending.waits_for}"


def _pods(count: int) -> str:
    return {0: "no pod", 1: "one pod"}.get(count, f"{count} pods")


def expires_at(found: Reservation) -> str:
    """Returns when it expires; empty for never, where its times cannot be read, and before it is placed: one that waits
    does not expire.
    """
    if not found.status.node_name:
        return ""
    try:
        end_ns = expires_ns(found)
    except BadTime:
        return ""
    return "" if end_ns is None else instant_text(end_ns)


def _lines(found: ReservationExplanation) -> Iterator[str]:
    yield f"Reservation {found.reservation} ({found.phase}): {found.summary}"
    once = "for one pod" if found.allocate_once else "for several pods"
    holds = "holds" if found.node else "is to hold"
    yield f"  {holds} {human_amounts(found.holds)} {once}, policy {found.policy}"
    for mistake in found.mistakes:
        yield f"  check: {mistake}"
    if found.used_by:
        amounts = f": {human_amounts(found.used)}" if found.used else ""
        yield f"  used by {', '.join(found.used_by)}{amounts}"
    if found.since:
        place = queue_place(found.place, "place ")
        last = f", last at {found.last_attempt}" if found.last_attempt else ""
        yield f"  waits since {found.since}, {place}; tried {times(found.attempts)}{last}"
    if found.next_attempt:
        yield f"  tried again at {found.next_attempt} at the latest"
    if found.expires and found.phase not in ("Succeeded", "Failed"):
        yield f"  expires at {found.expires}"
    if found.waiting:
        yield f"  pods without a node that its owners name: {', '.join(found.waiting)}"
    if found.steps:
        yield ""
    for step in found.steps:
        yield f"{step.at}  {step.event:<18} {step.text}"
