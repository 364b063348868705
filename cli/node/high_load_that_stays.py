"""Why the descheduler moves no pod from a node whose load is high, as its newest cycle recorded it."""

from collections.abc import Iterator, Sequence

from cli.terminal.durations import instant_of
from shared.events import RecordedEvent
from shared.events.descheduling import AnomaliesObserved
from shared.log.admin.newest_events import newest
from shared.log.reader import LogReader

CONTEXT = "descheduling"
MOST = 10
"""Newest records of all plugins that are read: each cycle in which a node's usage is high adds one a plugin."""


async def unrelieved_lines(log: LogReader, node: str) -> tuple[str, ...]:
    """Returns a line for each plugin of a profile that considered the node last, and moved nothing."""
    if CONTEXT not in await log.contexts():
        return ()
    found = await newest(log.database, CONTEXT, [AnomaliesObserved], MOST)
    by_plugin = {each.record.event.key: each.record for each in reversed(found)}
    return tuple(lines_of(list(by_plugin.values()), node))


def lines_of(records: Sequence[RecordedEvent], node: str) -> Iterator[str]:
    """Yields the lines about a node.

    Args:
        records: the newest AnomaliesObserved of each plugin of a profile.
    """
    for record in records:
        assert isinstance(record.event, AnomaliesObserved), "the type that was read"
        if why := record.event.unrelieved.get(node):
            at = f"{instant_of(record.at_ns)} ({record.context}/{record.seq})"
            yield f"its load is high, and {record.event.of} moves no pod from it, by the cycle of {at}: {why}"
