"""The drains of a node as the log has them: the one that goes on, or the outcome of the last one.

The descheduler keeps only drains that go on.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cli.simulated_cluster import advice
from cli.terminal.durations import instant_of
from shared.events import RecordedEvent
from shared.events.migration import DrainEnded, DrainRequested
from shared.log.admin.newest_events import newest
from shared.log.reader import LogReader

CONTEXT = "descheduling"
MOST = 20
"""Newest requests and ends of drains of a node that are read."""
MOST_SHOWN = 20
"""Pods that stay after a drain that are listed."""


class LastDrain(NamedTuple):
    """The newest drain of a node.

    Attributes:
        requested: None where its request has left the log.
        ended: None while it goes on.
    """

    requested: DrainRequested | None
    ended: DrainEnded | None
    at_ns: int
    event: str


async def drains_of(log: LogReader, node: str) -> tuple[RecordedEvent, ...]:
    """Returns the newest requests and ends of drains of a node, oldest first."""
    if CONTEXT not in await log.contexts():
        return ()
    found = await newest(log.database, CONTEXT, [DrainRequested, DrainEnded], MOST, key=node)
    return tuple(each.record for each in reversed(found))


def last_drain(records: Sequence[RecordedEvent]) -> LastDrain | None:
    """Returns the newest drain; None without one.

    Args:
        records: requests and ends of drains of one node, oldest first.
    """
    if not records:
        return None
    newest_one = records[-1]
    requested = next((each.event for each in reversed(records) if isinstance(each.event, DrainRequested)), None)
    ended = newest_one.event if isinstance(newest_one.event, DrainEnded) else None
    return LastDrain(requested, ended, newest_one.at_ns, f"{newest_one.context}/{newest_one.seq}")


def requested_by(event: DrainRequested | None) -> str:
    """Returns whose drain it is, and its reason: ` by ann: new disks`; empty where it is not known."""
    if event is None:
        return ""
    return f" by {event.by}" + (f": {event.reason}" if event.reason else "")


def counted(moved: int, evicted: int) -> str:
    """Returns the numbers of pods that have left, in words."""
    text = f"{pods(moved)} moved"
    return text + (f", {pods(evicted)} evicted without waiting for a successor" if evicted else "")


def pods(number: int) -> str:
    """Returns a number of pods in words."""
    return f"{number} pod{'' if number == 1 else 's'}"


def end_of(event: DrainEnded) -> str:
    """Returns how a drain ended, and its outcome, in words."""
    how = f"was ended early by {event.by}" if event.by else "ended by itself, since no pod was left that may move"
    moving = f"; jobs that had begun went on for {', '.join(event.moving)}" if event.moving else ""
    stayed = f"; {pods(len(event.remaining))} stayed" if event.remaining else ""
    cordon = "; the node was not cordoned" if event.not_cordoned else ""
    return f"{how}: {counted(event.moved, event.evicted)}{moving}{stayed}{cordon}"


def outcome_lines(last: LastDrain, node: str) -> Iterator[str]:
    """Yields the outcome of a drain that has ended: each pod that stayed, with the reason."""
    if last.ended is None:
        return
    yield f"the last drain{requested_by(last.requested)}, at {instant_of(last.at_ns)}, {end_of(last.ended)}"
    remaining = list(last.ended.remaining.items())
    for pod, reason in remaining[:MOST_SHOWN]:
        yield f"  {pod} stayed: {reason}"
    if len(remaining) > MOST_SHOWN:
        yield f"  {len(remaining) - MOST_SHOWN} more: `koord events --type DrainEnded --key {node}`"


def uncordon(node: str, *, simulated: bool) -> str:
    """Returns the command that ends the cordon of a node."""
    patch = '\'{"spec": {"unschedulable": false}}\''
    return advice(f"kubectl uncordon {node}", f"koord dev patch node {node} {patch}", simulated=simulated)


def cordoned(node: str, last: LastDrain | None, began_ns: int, *, simulated: bool) -> tuple[str, str]:
    """Returns why a node is cordoned, and what ends that.

    Args:
        last: its newest drain; one that ended before the cordon began has nothing to do with it.
        began_ns: instant since which it is cordoned; 0 where the log does not have it.
    """
    ends = uncordon(node, simulated=simulated)
    if last is None or (last.ended is not None and began_ns > last.at_ns):
        return "it is cordoned", ends
    whose = f"the drain{requested_by(last.requested)}"
    if last.ended is None:
        return f"it is cordoned, and {whose} goes on ({last.event})", f"`koord drain {node} --cancel`, then {ends}"
    return f"it is cordoned; {whose} {end_of(last.ended)} ({last.event})", ends


def waiting_for_cordon(node: str, last: LastDrain | None) -> str:
    """Returns that a drain of a node without a cordon is open; empty without one."""
    if last is None or last.ended is not None:
        return ""
    return (
        f"the drain{requested_by(last.requested)} ({last.event}) is open: it goes on once the node is cordoned; "
        f"`koord drain {node} --cancel` ends it"
    )


def drain_step(event: DrainRequested | DrainEnded) -> str:
    """Returns what an event of a drain did, in words."""
    if isinstance(event, DrainRequested):
        return f"a drain was requested{requested_by(event)}"
    return f"its drain {end_of(event)}"
