"""Why the descheduler moves no pod from a node whose load is high, as its newest cycle recorded it."""

from collections.abc import Collection, Iterator, Sequence

from cli.terminal.durations import instant_of
from services.descheduler.configuration.plugin_kinds import BALANCE
from services.descheduler.configuration.read_configuration import read_configuration
from shared.domain.component_config import BadConfig
from shared.events import RecordedEvent
from shared.events.descheduling import AnomaliesObserved
from shared.events.log import ConfigApplied
from shared.log.admin.newest_events import newest
from shared.log.reader import LogReader

CONTEXT = "descheduling"


async def unrelieved_lines(log: LogReader, node: str) -> tuple[str, ...]:
    """Returns a line for each plugin of a profile in force that is paused, or considered the node last, and moved nothing."""
    if CONTEXT not in await log.contexts():
        return ()
    records: list[RecordedEvent] = []
    in_force = await _plugins_in_force(log)
    for of in in_force:
        # By key, since another plugin may have recorded any number of cycles after the newest change of this one.
        records += [each.record for each in await newest(log.database, CONTEXT, [AnomaliesObserved], key=of)]
    return tuple(lines_of(records, node, [of for of, is_paused in in_force.items() if is_paused]))


async def _plugins_in_force(log: LogReader) -> dict[str, bool]:
    """Returns `profile/plugin` of each plugin that balances nodes -> whether it is paused; none where this release cannot
    read the configuration.
    """
    for found in await newest(log.database, CONTEXT, [ConfigApplied]):
        assert isinstance(found.record.event, ConfigApplied), "the type that was read"
        return plugins_of(found.record.event.text)
    return {}


def plugins_of(text: str) -> dict[str, bool]:
    """Returns the same of a DeschedulerConfiguration."""
    try:
        profiles = read_configuration(text).profiles
    except BadConfig:
        return {}
    return {
        f"{profile.name}/{plugin}": getattr(profile.args[plugin], "paused", False)
        for profile in profiles
        for plugin in profile.sets.get(BALANCE, ())
    }


def lines_of(records: Sequence[RecordedEvent], node: str, paused: Collection[str] = ()) -> Iterator[str]:
    """Yields the lines about a node.

    Args:
        records: the newest AnomaliesObserved of each plugin of a profile.
        paused: `profile/plugin`; what such a plugin recorded last may have changed since.
    """
    for of in paused:
        yield f"{of} is paused, and moves no pod from any node, whatever its load"
    for record in records:
        event = record.event
        assert isinstance(event, AnomaliesObserved), "the type that was read"
        if event.of in paused:
            continue
        at = f"{instant_of(record.at_ns)} ({record.context}/{record.seq})"
        if why := event.unrelieved.get(node):
            yield f"its load was high, and {event.of} moved no pod from it, in the cycle of {at}: {why}"
        elif event.unrelieved_others and (node in event.node or node in event.prod):
            yield (
                f"its load was high, and {event.of} may move no pod from it: the cycle of {at} has the reasons of "
                f"{len(event.unrelieved)} nodes, and not of {event.unrelieved_others} more"
            )
