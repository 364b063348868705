"""The scheduler without servers: observations and decisions are kept in memory, and one call decides one cycle.

Fold, cache and cycle are those of the service; only the log is a counter. The cluster is given, not observed, so the
allocations in its pods' annotations count. `koord simulate` and `koord bench scheduler`
use it.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from services.scheduler.configuration import config_drafts, config_of, read_config
from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain.offered_config import OfferedConfig
from shared.events import Cause, Event, RecordedEvent


class InMemoryScheduler:
    """A cluster in memory with a scheduler of its own.

    Attributes:
        view: the State.
        notes: parts of the configuration that are not implemented.
        schedulers: the scheduler names that it has profiles for.
        cache: the derived arrays and queue that decisions read.
    """

    def __init__(
        self, config: str = "", source: str = "given", *, checks_reports: bool = True, backfill: bool = False
    ) -> None:
        """Starts with a configuration; with the default profile when none is given.

        Args:
            checks_reports: see `ClusterCache`.
            backfill: see `CycleInputs`.

        Raises:
            BadConfig: the configuration is rejected; the error names the path and the reason.
        """
        self.view = SchedulerState()
        if config:
            read_config(config)
        for draft in config_drafts(self.view, OfferedConfig(source, config) if config else None):
            self.append("scheduling", draft.event, 0)
        configuration = config_of(self.view)
        self.notes = configuration.notes
        self.schedulers = tuple(configuration.profiles)
        self.cache = CycleInputs(
            self.view,
            configuration.profiles,
            believes_annotations=True,
            checks_reports=checks_reports,
            backfill=backfill,
        )

    def observe(self, events: Iterable[Event], now_ns: int) -> None:
        """Folds observations of the cluster."""
        for event in events:
            self.append("cluster", event, now_ns)

    def decide(self, now_ns: int, batch_size: int) -> tuple[Event, ...]:
        """Decides one cycle, folds its events and returns them; none when no pod may be tried.

        Placed pods count on their nodes from then on, as between a placement and its binding.
        """
        drafts = decide(self.cache, now_ns, batch_size)
        if not drafts:
            return ()
        first = replace(drafts[0].event, seen=dict(self.view.positions), now_ns=now_ns, config=self.view.config_digest)
        events = (first, *(draft.event for draft in drafts[1:]))
        for event, draft in zip(events, drafts, strict=True):
            self.append("scheduling", event, now_ns, draft.cause)
        return events

    def append(self, context: str, event: Event, now_ns: int, cause: Cause | None = None) -> int:
        """Records an event, folds it, and returns its seq."""
        seq = self.view.positions.get(context, 0) + 1
        self.view.apply(RecordedEvent(context, seq, event, now_ns, cause))
        return seq
