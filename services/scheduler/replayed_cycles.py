"""Cycles of a recorded history, decided again from their recorded inputs: the State at `seen`, the configuration, the
instant, and the response of the quota ledger.

The writes of statuses and conditions that follow a cycle in its append are not repeated: which of them wait for a
binding is in the leader's memory.

Source: architecture.md, "Replay" and "Scheduling cycles".
"""

from services.scheduler.cycle.cycle import plan_cycle
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.prepared_inputs import Prepared, is_current, prepare
from services.scheduler.quota.charge_of_cycle import LedgerResponse, charge_of, charged
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Draft
from shared.events.scheduling import CycleDecided


class ReplayedCycles:
    """Decides recorded cycles again, one after the other.

    The inputs of a cycle are kept for the next one, as the leader keeps them.
    """

    def __init__(self) -> None:
        self._prepared: Prepared | None = None

    def decide(self, view: SchedulerState, recorded: CycleDecided) -> tuple[Draft, ...]:
        """Returns the events that the cycle decides now.

        Args:
            view: the State at the positions that the recorded cycle had seen.
            recorded: the first event of its append, with `now_ns`; a cycle of the scheduler itself, none of another
                scheduler's (`by`).
        """
        assert recorded.now_ns is not None, "the first event of an append has the instant of its decisions"
        if not is_current(self._prepared, view):
            self._prepared = prepare(view)
        cache, _, settings = self._prepared
        cache.settle()
        plan = plan_cycle(cache, recorded.now_ns, settings.batch_size)
        charge = charge_of(plan, cache)
        if charge is not None:
            requested = charge.groups and recorded.charged_at
            response = LedgerResponse(recorded.charged_at, recorded.refused) if requested else None
            plan = charged(plan, cache, charge, response)
        return drafts_of(plan)
