"""Eviction cases of the descheduler: one scenario each, with its victims and what came of it."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from cli.kinds.kind import Column, Kind, get_command
from cli.terminal.amounts import human_amount
from cli.terminal.durations import instant_of
from shared.events.descheduling import EvictionCaseClosed, EvictionCaseOpened
from shared.log.admin.newest_events import newest
from shared.log.admin.session import opened
from shared.log.reader import LogReader

CONTEXT = "descheduling"
MOST = 200
"""Cases that are listed, the newest first."""


class ListedCase(msgspec.Struct, frozen=True):
    """A case.

    Attributes:
        name: its id.
        at: when it was opened.
        state: `open`, or the outcome: `moved`, `partly`, `none`, `dry run`.
        nodes: that its victims leave.
        gain: expected and, once it is closed, measured: `hot cpu 27.2 -> 24 cores, measured 24.1 cores`.
    """

    name: str
    at: str
    profile: str
    plugin: str
    state: str
    victims: int
    passed_over: int
    nodes: tuple[str, ...]
    gain: tuple[str, ...]


async def read(postgres: str) -> Sequence[ListedCase]:
    """Reads the newest cases, the newest first."""
    async with opened(postgres) as database:
        if CONTEXT not in await LogReader(database).contexts():
            return []
        cases = await newest(database, CONTEXT, [EvictionCaseOpened], MOST)
        closed = await newest(database, CONTEXT, [EvictionCaseClosed], MOST)
    ends = {
        one.record.event.case: one.record.event for one in closed if isinstance(one.record.event, EvictionCaseClosed)
    }
    return [
        listed(one.record.event, one.record.at_ns, ends.get(one.record.event.case))
        for one in cases
        if isinstance(one.record.event, EvictionCaseOpened)
    ]


def listed(case: EvictionCaseOpened, at_ns: int, closed: EvictionCaseClosed | None) -> ListedCase:
    """Returns a case in one line."""
    return ListedCase(
        name=case.case,
        at=instant_of(at_ns),
        profile=case.profile,
        plugin=case.plugin,
        state=closed.outcome if closed else "open",
        victims=len(case.victims),
        passed_over=case.passed_over_count,
        nodes=tuple(dict.fromkeys(victim.node for victim in case.victims)),
        gain=gains(case, closed),
    )


def gains(case: EvictionCaseOpened, closed: EvictionCaseClosed | None) -> tuple[str, ...]:
    """Returns the expected gain of each node, and what was measured."""
    after = {(each.node, each.resource): each.after for each in closed.measured} if closed else {}
    found = []
    for each in case.expected:
        measured = after.get((each.node, each.resource))
        text = f"{each.node} {each.resource} {sizes(each.resource, ' -> ', each.before, each.after)}"
        found.append(text if measured is None else f"{text}, measured {sizes(each.resource, '', measured)}")
    return tuple(found)


def sizes(resource: str, between: str, *amounts: int) -> str:
    """Returns amounts of a node as people read them: `27.2 -> 24 cores`, `12Gi of 64Gi`."""
    if resource == "cpu":
        return f"{between.join(f'{each / 1000:g}' for each in amounts)} core{'' if amounts[-1:] == (1000,) else 's'}"
    return between.join(human_amount(resource, each) for each in amounts)


KIND = Kind(
    "eviction",
    "evictions",
    read,
    (
        Column("case", attrgetter("name")),
        Column("opened", attrgetter("at")),
        Column("plugin", attrgetter("plugin")),
        Column("state", attrgetter("state")),
        Column("victims", attrgetter("victims"), is_right=True),
        Column("passed over", attrgetter("passed_over"), is_right=True),
        Column("nodes", lambda case: ", ".join(case.nodes) or "-"),
        Column("gain", lambda case: "; ".join(case.gain) or "-", is_wide=True),
        Column("profile", attrgetter("profile"), is_wide=True),
    ),
)

get = get_command(
    KIND, "List the descheduler's eviction cases: what is wrong, how many pods leave, and what came of it."
)
