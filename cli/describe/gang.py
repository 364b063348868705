"""`koord describe gang`: what the log has about a gang."""

from cli.describe.describe_command import describe_command
from cli.describe.description import Description, Table, Value
from cli.describe.last_events import last_events
from cli.scheduling.recorded_state import scheduler_state
from cli.scheduling.waiting_answers import below_heading, queue_place
from cli.scheduling.why_gang import explain_gang
from shared.log.reader import LogReader


async def describe(log: LogReader, name: str) -> Description:
    """Describes a gang by its id, `namespace/name`.

    Raises:
        UnknownGang: no pod and no PodGroup has it.
    """
    gang = await explain_gang(log, await scheduler_state(log), name)
    found: dict[str, Value] = {
        "Name": name.partition("/")[2],
        "Namespace": name.partition("/")[0],
        "Status": f"{gang.state}: {gang.summary}",
        "Declared by": gang.declared_by,
        "Minimum": str(gang.minimum),
        "Total": str(gang.total),
        "Mode": gang.mode,
        "Match policy": gang.match_policy,
        "Ignored": list(gang.ignored),
        "Check": list(gang.mistakes),
        "Do": gang.remedy,
        "Placed with": ", ".join(each for each in gang.groups if each != name),
        "Pods": f"{gang.exists}: {gang.bound} bound, {gang.placed} placed, {gang.pending} pending",
        "Since": gang.since,
        "Place": queue_place(gang.place),
        "Attempts": f"{gang.attempts}" + (f", next {gang.next_attempt}" if gang.next_attempt else ""),
        "Start": gang.estimated_start.text if gang.estimated_start else "",
        "Condition": gang.condition,
    }
    rows = [(each.name, each.stage, each.node or "-", below_heading(each.waits_for)) for each in gang.members]
    found["Members"] = Table(("name", "stage", "node", "waits for"), rows)
    return {**found, "Events": await last_events(log, name, ("cluster", "scheduling"))}


command = describe_command(
    describe,
    "Show a gang: its settings, what it waits for, its members, and its last events.",
    is_namespaced=True,
)
