"""The moves of pods by PodMigrationJobs of drains and of clients, as `koord get evictions` lists them beside cases."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from cli.kinds.listed_eviction import ListedEviction
from cli.scheduling.ended_moves import state_of
from cli.terminal.durations import instant_of
from services.descheduler.migration.drain import TRIGGER as DRAIN
from shared.events import RecordedEvent
from shared.events.migration import MigrationArbitrated, MigrationEnded, MigrationEvictionDecided

MOVES = (MigrationArbitrated, MigrationEvictionDecided, MigrationEnded)
"""The events of a move."""

_OF_DRAIN = re.compile(r"drain-\d+-.+-\d+")
"""Names of the jobs of drains."""


def listed_moves(records: Iterable[RecordedEvent], of_cases: Collection[str]) -> Sequence[ListedEviction]:
    """Returns the moves, the newest first.

    Args:
        records: events of moves, oldest first.
        of_cases: names of the jobs of eviction cases, which are left out.
    """
    found: dict[str, ListedEviction] = {}
    for record in records:
        event = record.event
        if not isinstance(event, MigrationArbitrated | MigrationEvictionDecided | MigrationEnded):
            continue
        if event.job in of_cases:
            continue
        move = found.get(event.job) or _begun(event.job, record.at_ns)
        if event.pod:
            move = replace(move, pods=(event.pod,), victims=1)
        if isinstance(event, MigrationEvictionDecided):
            move = replace(move, nodes=(event.node,))
        elif isinstance(event, MigrationEnded):
            move = _ended(move, event)
        found[event.job] = move
    return list(reversed(found.values()))


def with_places(move: ListedEviction, places: Mapping[str, str]) -> ListedEviction:
    """Returns a move; one that goes on and whose eviction is not decided yet with the node of its pod.

    Args:
        places: pod -> its node; empty where it has none.
    """
    if move.state != "open" or move.nodes:
        return move
    return replace(move, nodes=tuple(dict.fromkeys(node for pod in move.pods if (node := places.get(pod, "")))))


def _begun(job: str, at_ns: int) -> ListedEviction:
    plugin = DRAIN if _OF_DRAIN.fullmatch(job) else "PodMigrationJob"
    return ListedEviction(
        name=job,
        at=instant_of(at_ns),
        profile="",
        plugin=plugin,
        state="open",
        victims=0,
        passed_over=0,
        nodes=(),
        gain=(),
    )


def _ended(move: ListedEviction, event: MigrationEnded) -> ListedEviction:
    state = state_of(event)
    nodes = move.nodes or ((event.drain,) if event.drain else ())
    if not state:  # its object is gone, after its end or before
        return move if move.state != "open" else replace(move, nodes=nodes, state="deleted", why=event.message)
    why = ": ".join(text for text in (event.reason, event.message) if text) if state in ("failed", "aborted") else ""
    return replace(move, nodes=nodes, state=state, why=why)
