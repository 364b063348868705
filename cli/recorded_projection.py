"""A service's State as its log has it: its newest snapshot, and the events after that. No service needs to run."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from cli.terminal.output import show_text
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

FEW = 1_000
"""Events that are read from the start of a log without a word about it."""

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
    schema: int | None = None
    skips: frozenset[tuple[str, int]] = frozenset()
    try:
        snapshot = await store.newest_snapshot(state.SCHEMA, log, upto=upto)
        skips = await store.skips()
        schema = await store.newest_schema() if snapshot is None else None
    except DatabaseDenied:  # an auditor may read the log alone
        snapshot = None
    projection = Projection(log, {name: Codec(folded[name]) for name in upto}, state, skips)
    if snapshot is not None:
        projection.start_from(snapshot)
    elif schema is not None and schema != state.SCHEMA:
        _say_why_from_the_start(service, schema, state.SCHEMA, sum(upto.values()))
    for name, last in upto.items():
        begin = await log.oldest(name)
        with progress(title.format(context=name), last - projection.positions[name].seq) as advance:
            while (seq := projection.positions[name].seq) < last:
                kept = max(seq, begin.seq if begin is not None else 0)
                await projection.read_to(name, min(kept + STEP, last))
                advance(projection.positions[name].seq - seq)
    return state


def _say_why_from_the_start(service: str, found: int, read: int, events: int) -> None:
    if events > FEW:
        show_text(
            f"koord: the snapshots of {service} have schema {found}, and this release reads {read}: {events:,} events are "
            f"read from the start of the log. {service} of this release writes such a snapshot within a minute",
            err=True,
        )
