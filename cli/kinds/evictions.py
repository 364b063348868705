"""Eviction cases of the descheduler, with their victims and what came of them, and the moves by other PodMigrationJobs:
of drains and of clients.
"""

from collections.abc import Sequence
from operator import attrgetter

from cli.kinds.kind import Column, Kind, get_command
from cli.kinds.listed_eviction import ListedEviction
from cli.kinds.moves_by_jobs import MOVES, listed_moves, with_places
from cli.terminal.amounts import human_amount
from cli.terminal.durations import instant_of
from shared.events.cluster import PodObserved
from shared.events.descheduling import EvictionCaseClosed, EvictionCaseOpened
from shared.log.admin.newest_events import Found, newest, newest_of_keys
from shared.log.admin.session import opened
from shared.log.reader import LogReader

CONTEXT = "descheduling"
MOST = 200
"""Cases, and moves, that are listed, the newest first."""


async def read(postgres: str) -> Sequence[ListedEviction]:
    """Reads the newest cases and moves, the newest first."""
    async with opened(postgres) as database:
        if CONTEXT not in await LogReader(database).contexts():
            return []
        cases = await newest(database, CONTEXT, [EvictionCaseOpened], MOST)
        closed = await newest(database, CONTEXT, [EvictionCaseClosed], MOST)
        moves = await newest(database, CONTEXT, MOVES, MOST * len(MOVES))
        of_cases = {victim.job for case, _ in _opened(cases) for victim in case.victims}
        moved = listed_moves([one.record for one in reversed(moves)], of_cases)[:MOST]
        # Until its eviction is decided, the events of a move name its pod alone.
        begun = {pod for move in moved if move.state == "open" and not move.nodes for pod in move.pods}
        observed = await newest_of_keys(database, "cluster", [PodObserved], begun)
    places = {it.pod: it.object.spec.node_name for one in observed if isinstance(it := one.record.event, PodObserved)}
    ends = {
        one.record.event.case: one.record.event for one in closed if isinstance(one.record.event, EvictionCaseClosed)
    }
    found = [
        *(listed(case, at_ns, ends.get(case.case)) for case, at_ns in _opened(cases)),
        *(with_places(move, places) for move in moved),
    ]
    return sorted(found, key=attrgetter("at"), reverse=True)


def _opened(cases: Sequence[Found]) -> list[tuple[EvictionCaseOpened, int]]:
    found = ((one.record.event, one.record.at_ns) for one in cases)
    return [(event, at_ns) for event, at_ns in found if isinstance(event, EvictionCaseOpened)]


def listed(case: EvictionCaseOpened, at_ns: int, closed: EvictionCaseClosed | None) -> ListedEviction:
    """Returns a case in one line."""
    return ListedEviction(
        name=case.case,
        at=instant_of(at_ns),
        profile=case.profile,
        plugin=case.plugin,
        state=closed.outcome if closed else "open",
        victims=len(case.victims),
        passed_over=case.passed_over_count,
        nodes=tuple(dict.fromkeys(victim.node for victim in case.victims)),
        gain=gains(case, closed),
        pods=tuple(victim.pod for victim in case.victims),
    )


def gains(case: EvictionCaseOpened, closed: EvictionCaseClosed | None) -> tuple[str, ...]:
    """Returns the expected gain of each node that loses or gets a pod, and what was measured."""
    after = {(each.node, each.resource): each.after for each in closed.measured} if closed else {}
    found = []
    for each in case.expected:
        if each.before == each.after:
            continue
        measured = after.get((each.node, each.resource))
        text = f"{each.node} {each.resource} {sizes(each.resource, ' -> ', each.before, each.after)}"
        found.append(text if measured is None else f"{text}, measured {sizes(each.resource, '', measured)}")
    if case.unit is not None and closed is not None and closed.unit:
        found.append(f"{case.unit.name}: {closed.unit}")
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
        Column("case or job", attrgetter("name")),
        Column("opened", attrgetter("at")),
        Column("plugin", attrgetter("plugin")),
        Column("state", attrgetter("state")),
        Column("victims", attrgetter("victims"), is_right=True),
        Column("passed over", attrgetter("passed_over"), is_right=True),
        Column("nodes", lambda case: ", ".join(case.nodes) or "-"),
        Column("pods", lambda case: ", ".join(case.pods) or "-", is_wide=True),
        Column("why", lambda case: case.why or "-", is_wide=True),
        Column("gain", lambda case: "; ".join(case.gain) or "-", is_wide=True),
        Column("profile", attrgetter("profile"), is_wide=True),
    ),
)

get = get_command(
    KIND,
    "List the descheduler's eviction cases, and the moves of pods by drains and other PodMigrationJobs: how many pods "
    "leave, and what came of it.",
)
