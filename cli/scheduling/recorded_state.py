"""The scheduler's State as the log has it: its newest snapshot, and the events after that. No service needs to run.

Usage reports are not read: no command here needs them.
"""

from cli.terminal.progress import progress
from services.scheduler.manifest import MANIFEST
from services.scheduler.state.scheduler_state import FOLDED, SchedulerState
from shared.log.codec import Codec
from shared.log.database import DatabaseDenied
from shared.log.projection import Projection
from shared.log.reader import PAGE, LogReader
from shared.log.service_store import ServiceStore, Snapshot

CONTEXTS = ("cluster", "scheduling", "quota")

STEP = 4 * PAGE
"""Events between two movements of the bar."""


async def scheduler_state(log: LogReader) -> SchedulerState:
    """Returns the State at the heads of the logs."""
    there = await log.contexts()
    heads = {name: (await log.head(name)).seq for name in CONTEXTS if name in there}
    store = ServiceStore(log.database, MANIFEST.name)
    snapshot: Snapshot | None = None
    skips: frozenset[tuple[str, int]] = frozenset()
    try:
        snapshot = await store.newest_snapshot(SchedulerState.SCHEMA, log, upto=heads)
        skips = await store.skips()
    except DatabaseDenied:  # an auditor may read the log alone
        snapshot = None
    state = SchedulerState()
    projection = Projection(log, {name: Codec(FOLDED[name]) for name in heads}, state, skips)
    if snapshot is not None:
        projection.start_from(snapshot)
    for name, head in heads.items():
        start = projection.positions[name].seq
        with progress(f"reading {name}", head - start) as advance:
            while (seq := projection.positions[name].seq) < head:
                await projection.read_to(name, min(seq + STEP, head))
                advance(projection.positions[name].seq - seq)
    state.read()
    return state
