"""The scheduler's cycles: which events of an append are a cycle's, and their repetition."""

from collections.abc import Sequence

from cli.replay.recorded_appends import Append
from services.scheduler.replayed_cycles import ReplayedCycles
from services.scheduler.service import SERVICE
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Draft, RecordedEvent
from shared.events.scheduling import (
    CycleDecided,
    GangPlaced,
    PodNominated,
    PodPlaced,
    UnitStartPlanned,
)
from shared.fold import State

OF_CYCLES_ALONE = (CycleDecided, GangPlaced, PodNominated, PodPlaced, UnitStartPlanned)
"""Event types that nothing but a cycle appends; the others follow from statuses as well."""


class SchedulerReplay:
    """Repeats the scheduler's own cycles; not those of one pod that another scheduler placed (`by`)."""

    service = SERVICE

    def __init__(self) -> None:
        self._cycles = ReplayedCycles()

    def is_repeated(self, append: Append) -> bool:
        """Reports whether an append begins with a cycle of the scheduler itself."""
        event = append.records[0].event
        return isinstance(event, CycleDecided) and not event.by

    def repeat(self, state: State, append: Append) -> tuple[Sequence[RecordedEvent], Sequence[Draft]]:
        """Returns the recorded events of the cycle, and those of its repetition."""
        first = append.records[0].event
        assert isinstance(state, SchedulerState)
        assert isinstance(first, CycleDecided)
        drafts = self._cycles.decide(state, first)
        last = max(number for number, each in enumerate(append.records) if isinstance(each.event, OF_CYCLES_ALONE))
        return append.records[: max(last + 1, len(drafts))], drafts
