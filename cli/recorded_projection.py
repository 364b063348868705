"""A service's State as its log has it: its newest snapshot, and the events after that. No service needs to run."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from cli.terminal.progress import progress
from shared.events import Event
from shared.fold import State
from shared.log.codec import Codec
from shared.log.database import DatabaseDenied
from shared.log.projection import Projection
from shared.log.reader import PAGE, LogReader
from shared.log.service_store import ServiceStore, Snapshot

STEP = 4 * PAGE
"""Events between two movements of the bar."""

S = TypeVar("S", bound=State)


async def read_into(
    state: S,
    log: LogReader,
    service: str,
    upto: Mapping[str, int],
    folded: Mapping[str, Sequence[type[Event]]],
    *,
    title: str = "reading {context}",
) -> S:
    """Brings the empty State of a service to positions of its contexts, with a bar for each that takes long.

    Args:
        upto: context -> seq; a snapshot of a later one is not used.
        folded: context -> the event types that it folds.
        title: of the bar.
    """
    store = ServiceStore(log.database, service)
    snapshot: Snapshot | None = None
    skips: frozenset[tuple[str, int]] = frozenset()
    try:
        snapshot = await store.newest_snapshot(state.SCHEMA, log, upto=upto)
        skips = await store.skips()
    except DatabaseDenied:  # an auditor may read the log alone
        snapshot = None
    projection = Projection(log, {name: Codec(folded[name]) for name in upto}, state, skips)
    if snapshot is not None:
        projection.start_from(snapshot)
    for name, last in upto.items():
        begin = await log.oldest(name)
        with progress(title.format(context=name), last - projection.positions[name].seq) as advance:
            while (seq := projection.positions[name].seq) < last:
                kept = max(seq, begin.seq if begin is not None else 0)
                await projection.read_to(name, min(kept + STEP, last))
                advance(projection.positions[name].seq - seq)
    return state
