"""Checks for objects that are not as they should be, since the API server rejected the newest write."""

from collections.abc import Iterator, Mapping, Sequence

from cli.doctor.finding import Finding
from cli.terminal.durations import instant_of
from shared.events.cluster import DesiredStateApplied, DesiredStateRejected, DesiredStateSuperseded
from shared.first_names import first_names
from shared.log.admin.newest_events import Found, newest
from shared.log.database import Database

OUTCOMES = (DesiredStateApplied, DesiredStateRejected, DesiredStateSuperseded)
MOST_READ = 50
MOST_OBJECTS = 10
"""Objects whose newest outcomes are read: a fault of one kind concerns many."""
_GONE = "is gone"


async def rejected_writes(database: Database) -> list[Found]:
    """Returns the rejections that are the newest outcome of their object and field group, of the newest ones in the log."""
    found = await newest(database, "cluster", [DesiredStateRejected], MOST_READ)
    names = list(dict.fromkeys(each.record.event.key for each in found))[:MOST_OBJECTS]
    outcomes = {name: await newest(database, "cluster", OUTCOMES, MOST_READ, key=name) for name in names}
    return list(_newest_of_each(outcomes))


def _newest_of_each(outcomes: Mapping[str, Sequence[Found]]) -> Iterator[Found]:
    for found in outcomes.values():
        seen: set[tuple[str, str]] = set()
        for each in found:  # the newest first
            event = each.record.event
            assert isinstance(event, OUTCOMES), "the types that were read"
            if (group := (event.resource, event.fields)) in seen:
                continue
            seen.add(group)
            if isinstance(event, DesiredStateRejected) and not event.reason.endswith(_GONE):
                yield each


def about_rejected_writes(found: Sequence[Found]) -> Iterator[Finding]:
    """Names the objects of each resource, with the newest reason."""
    by_resource: dict[str, list[Found]] = {}
    for each in found:
        event = each.record.event
        assert isinstance(event, DesiredStateRejected), "the type that was chosen"
        by_resource.setdefault(event.resource, []).append(each)
    for resource, rejected in sorted(by_resource.items()):
        last = max(rejected, key=lambda each: each.record.seq).record
        event = last.event
        assert isinstance(event, DesiredStateRejected), "the type that was chosen"
        names = first_names(sorted({each.record.event.key for each in rejected}), 3)
        yield Finding(
            "warning",
            "cluster",
            f"the newest write to {resource} {names} was rejected, at {instant_of(last.at_ns)} for {event.name}: "
            f"{event.reason}",
            "it is written again once it should be different; `koord events --type DesiredStateRejected` has all",
        )
