"""`koord describe reservation`: what the log has about a Reservation."""

from cli.describe.describe_command import describe_command
from cli.describe.description import Description, Table, Value
from cli.scheduling.recorded_state import scheduler_state
from cli.scheduling.waiting_answers import queue_place
from cli.scheduling.why_reservation import explain_reservation
from cli.terminal.amounts import human_amounts
from shared.log.reader import LogReader


async def describe(log: LogReader, name: str) -> Description:
    """Describes a Reservation, or a pod in operating mode by `pod/NAMESPACE/NAME`.

    Raises:
        UnknownReservation: the log has none of this name.
    """
    reservation = await explain_reservation(log, await scheduler_state(log), name)
    found: dict[str, Value] = {
        "Name": name,
        "Status": f"{reservation.phase}: {reservation.summary}",
        "Node": reservation.node,
        "Holds": human_amounts(reservation.holds),
        "Used": human_amounts(reservation.used, none="not recorded" if reservation.used_by else "nothing"),
        "Used by": reservation.used_by,
        "Waiting owners": reservation.waiting,
        "Allocate once": "true" if reservation.allocate_once else "false",
        "Policy": reservation.policy,
        "Expires": reservation.expires or ("never" if reservation.node else "not before it is placed"),
        "Since": reservation.since,
        "Place": queue_place(reservation.place),
        "Attempts": f"{reservation.attempts}"
        + (f", next {reservation.next_attempt}" if reservation.next_attempt else ""),
    }
    if reservation.mistakes:
        found["Check"] = reservation.mistakes
    refused = [(one.plugin, str(one.nodes), one.text) for one in reservation.refused_by]
    if refused:
        found["Rejected"] = Table(("plugin", "nodes", "reason"), refused, right=("nodes",))
    return {**found, "Events": Table(("at", "event", "what"), [(x.at, x.event, x.text) for x in reservation.steps])}


command = describe_command(
    describe, "Show a Reservation: what it holds, who uses it or what it waits for, and its last events."
)
