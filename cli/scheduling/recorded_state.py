"""The scheduler's State as the log has it. Usage reports are not read: no command here needs them."""

from datetime import datetime

from cli.recorded_projection import read_into
from services.scheduler.service_manifest import MANIFEST
from services.scheduler.state.scheduler_state import FOLDED, SchedulerState
from shared.log.reader import LogReader

CONTEXTS = ("cluster", "scheduling", "quota")


async def scheduler_state(log: LogReader, at: datetime | None = None) -> SchedulerState:
    """Returns the State at the heads of the logs, or as of an instant."""
    there = await log.contexts()
    heads = {
        name: (await log.head(name)).seq if at is None else await log.last_until(name, at)
        for name in CONTEXTS
        if name in there
    }
    state = await read_into(SchedulerState(), log, MANIFEST.name, heads, FOLDED)
    state.read()
    return state
