"""`koord pending`: the pods without a node, in the order of the queue."""

from collections.abc import Sequence
from datetime import UTC, datetime
from operator import attrgetter

from cli.kinds.kind import Column, Kind, get_command
from cli.scheduling.waiting_answers import PendingPod, below_heading, read_pending
from cli.terminal import name_completion
from cli.terminal.durations import age, second
from shared.log.admin.session import reading


async def read(postgres: str) -> Sequence[PendingPod]:
    """Reads the waiting pods and Reservations."""
    async with reading(postgres) as log:
        return await read_pending(log)


def _since(item: PendingPod) -> str:
    if not item.since:
        return "-"
    return age((datetime.now(UTC) - datetime.fromisoformat(item.since)).total_seconds())


def _waits_for(item: PendingPod) -> str:
    start = item.estimated_start
    if start is None or not start.latest:
        return below_heading(item.waits_for)
    return f"{below_heading(item.waits_for)}; estimated start {start.earliest} to {start.latest}"


def _next_try(item: PendingPod) -> str:
    return second(datetime.fromisoformat(item.next_attempt)) if item.next_attempt else "-"


KIND = Kind(
    "pod",
    "pending pods",
    read,
    (
        Column("place", lambda item: item.place or "-", is_right=True),
        Column("name", lambda item: item.name if item.kind == "Pod" else f"reservation/{item.name}"),
        Column("since", _since),
        Column("quota", lambda item: item.quota or "-"),
        Column("gang", lambda item: item.gang.removeprefix(f"{item.namespace}/") or "-"),
        Column("priority", attrgetter("priority"), is_wide=True, is_right=True),
        Column("tries", attrgetter("attempts"), is_wide=True, is_right=True),
        Column("state", attrgetter("state"), is_wide=True),
        Column("next try", _next_try, is_wide=True),
        Column("scheduler", attrgetter("scheduler"), is_wide=True),
        Column("waits for", _waits_for),
    ),
    is_namespaced=True,
    complete=name_completion.pods,
    listed_by="koord pending",
)

pending = get_command(KIND, "Show which pods wait for a node, for what and since when, in the order of the queue.")
