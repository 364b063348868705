"""Reservations, and pods in operating mode: where each is, what it holds and who uses it."""

import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from cli.kinds.kind import Column, Kind, get_command
from cli.scheduling.operating_pods import operating_pods
from cli.scheduling.recorded_state import scheduler_state
from cli.scheduling.waiting_answers import pending_in
from cli.scheduling.why_reservation import expires_at, held_amounts, users_of
from cli.terminal.amounts import human_amounts, readable_amounts
from services.scheduler.explain.waiting_order_config import rules_in_force
from services.scheduler.explain.waiting_pods import waiting_pods
from services.scheduler.state.scheduler_state import SchedulerState
from services.scheduler.state.watched_api_resources import RESERVATIONS
from shared.domain.reservation import PENDING, UnreadableReservation, problem_of, read_reservation
from shared.log.admin.session import reading


class ReservationListed(msgspec.Struct, frozen=True):
    """A Reservation, or a running pod in operating mode `Reservation`.

    Attributes:
        name: of such a pod, `pod/NAMESPACE/NAME`.
        holds, used: resource -> amount, cpu in milli-cores, memory in bytes.
        problem: why it cannot be placed, or what it waits for; empty for one that is placed or has ended.
    """

    name: str
    phase: str
    node: str
    holds: dict[str, int]
    used: dict[str, int]
    used_by: tuple[str, ...]
    expires: str
    problem: str


async def read(postgres: str) -> Sequence[ReservationListed]:
    """Reads all Reservations, by name, then the pods in operating mode."""
    async with reading(postgres) as log:
        view = await scheduler_state(log)
        waiting = waiting_pods(view, rules_in_force(view), time.time_ns())
        pending = await pending_in(log, view, [each for each in waiting if each.pod_class.reserves])
    waits_for = {each.pod_uid: each.waits_for for each in pending}
    listed = [_listed(name, body, waits_for) for name, body in sorted(view.objects.get(RESERVATIONS, {}).items())]
    return [*listed, *_operating(view)]


def _operating(view: SchedulerState) -> list[ReservationListed]:
    """Returns the pods in operating mode; used by the pod that the annotation names, else by those placed in them."""
    there = operating_pods(view).items()
    listed = ((_listed(name, each.body, {}), each.placed) for name, each in there)
    return [replace(each, used_by=each.used_by or placed) for each, placed in listed]


def _listed(name: str, body: Mapping[str, Any], waits_for: Mapping[str, str]) -> ReservationListed:
    try:
        found = read_reservation(body)
    except UnreadableReservation as error:
        phase = str((body.get("status") or {}).get("phase") or PENDING)
        return ReservationListed(name, phase, "", {}, {}, (), "", str(error))
    status, problem = found.status, problem_of(found)
    return ReservationListed(
        name,
        status.phase or PENDING,
        status.node_name,
        held_amounts(found, problem),
        readable_amounts(status.allocated),
        users_of(found),
        expires_at(found),
        problem or waits_for.get(found.metadata.uid, ""),
    )


KIND = Kind(
    "reservation",
    "reservations",
    read,
    (
        Column("name", attrgetter("name")),
        Column("phase", attrgetter("phase")),
        Column("node", lambda item: item.node or "-"),
        Column("holds", lambda item: human_amounts(item.holds)),
        Column("used by", lambda item: ", ".join(item.used_by) or "-"),
        Column("expires", lambda item: item.expires or "-"),
        Column("problem", lambda item: item.problem or "-", is_wide=True),
    ),
)

get = get_command(
    KIND,
    "List Reservations and pods in operating mode: where each is, what it holds, who uses it, and when it expires.",
)
