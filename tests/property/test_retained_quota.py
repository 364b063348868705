"""A fold from the oldest kept event is the State of ledger and scheduler, while retention drops what they wrote."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from services.gateway.service import SERVICE as GATEWAY
from services.quota_ledger.accounting.verify_invariants_by_replay import holds, verify
from services.quota_ledger.service import SERVICE as LEDGER
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle import plan_cycle
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.queue.retries import FLUSH_S
from services.scheduler.service import SERVICE as SCHEDULER
from services.scheduler.state.pod_attempts_and_refusals import NO_DECISIONS, NO_OUTCOMES
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Cause, Event, RecordedEvent
from shared.events.log import WriterStarted
from shared.events.quota import BalancesOpened
from shared.events.scheduling import CycleDecided
from shared.kube.instants import SECOND
from tests.property.quota_simulation import World
from tests.support.hypothesis_examples import examples
from tests.support.kept_log import GrowingLog

CONTEXTS = ("cluster", "quota", "scheduling")


class RetainedWorld(World):
    """A world whose events are also appended to a log that retention cuts."""

    def __init__(self, seed: int) -> None:
        self.growing = GrowingLog((GATEWAY, LEDGER, SCHEDULER))
        self.random = Random(seed)
        super().__init__(seed, LedgerSettings(revoke=True, revoke_after_s=2))

    def say(
        self, context: str, *events: Event, cause: Cause | None = None, seen: dict[str, int] | None = None
    ) -> list[RecordedEvent]:
        records = super().say(context, *events, cause=cause, seen=seen)
        self.growing.extend(records, 0)
        return records

    def drop(self) -> None:
        """Retention drops a part of a context."""
        context = self.random.choice(CONTEXTS)
        rows = self.growing.rows.get(context, ())
        if len(rows) > 1:
            self.growing.drop(context, self.growing.base.get(context, 0) + self.random.randrange(1, len(rows)))


def grown(seed: int) -> RetainedWorld:
    world = RetainedWorld(seed)
    for _ in range(160):
        world.step()
        if world.random.random() < 0.2:
            world.random.choice((world.create, world.bind_by_others, world.amend))()  # overuse, and so evictions
        if world.random.random() < 0.05:
            world.drop()
    return world


def forget_residue(state: LedgerState) -> LedgerState:
    """Removes what dates changes before the oldest kept event, and rejections that a later placement ended: see
    docs/log.md.
    """
    for entry in state.pods.entries.values():
        entry.since = 0
    for uid, placement in list(state.placements.items()):
        if placement.rejected_seq < placement.seq:
            state.placements[uid] = replace(placement, rejected_seq=0)
        elif not placement.seq:
            del state.placements[uid]
    return state


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(40))
def test_a_fold_from_the_opening_balances_is_the_live_ledger(seed: int) -> None:
    world = grown(seed)
    log = world.growing
    live: LedgerState = log.followers[LEDGER.name].state
    anew: LedgerState = log.folded_anew(LEDGER.name, LEDGER.new_state, world.random)
    assert [*holds(anew.projection)] == []
    assert anew.projection.balances.by_account == live.projection.balances.by_account
    assert forget_residue(anew).encode() == forget_residue(live).encode()


def forget_order(view: SchedulerState) -> SchedulerState:
    """Removes the seqs since which a pod is there, counts in its quota, and has capacity in it: see docs/log.md."""
    view.read()
    for pod_record in view.pods.values():
        if pod_record.observation:
            pod_record.observation = bytes(8) + pod_record.observation[8:]
    view.quota.pods = {uid: replace(entry, since=0) for uid, entry in view.quota.pods.items()}
    view.quota.freed = {}
    return view


def forget_counts(view: SchedulerState) -> SchedulerState:
    """Removes what counts or dates changes before the oldest kept event: see docs/log.md."""
    view.changed = [0] * len(view.changed)
    view.released_seq = 0
    for node in view.nodes.values():
        node.changed[:] = [0] * len(node.changed)
    for pod_record in view.pods.values():
        pod_record.attempts = min(pod_record.attempts, 1)
        outcomes = pod_record.outcomes or NO_OUTCOMES
        is_refused = outcomes.refused_seq >= pod_record.placed_seq
        refused_seq = outcomes.refused_seq if is_refused else 0
        pod_record.outcomes = replace(outcomes, changed_seq=0, refusals=0, refused_seq=refused_seq)
        pod_record.decisions = pod_record.decisions or NO_DECISIONS
    return view


def copied(view: SchedulerState) -> SchedulerState:
    """Returns a view that was stored and restored."""
    restored = SchedulerState()
    restored.restore(view.encode())
    return restored


def next_outcomes(view: SchedulerState, now_ns: int) -> list[tuple[str, str]]:
    """Returns the pods of the next cycle, each with its node."""
    plan = plan_cycle(CycleInputs(view, config_of(view).profiles), now_ns, 1_000)
    decided = [draft.event for draft in drafts_of(plan) if isinstance(draft.event, CycleDecided)]
    return [(outcome.pod_uid, outcome.node) for event in decided for outcome in event.pods]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(40))
def test_a_late_fold_is_the_schedulers_live_view_and_decides_the_same(seed: int) -> None:
    """The counts and dates that it lacks shorten waits that end by themselves after `FLUSH_S`."""
    world = grown(seed)
    log = world.growing
    live: SchedulerState = log.followers[SCHEDULER.name].state
    anew: SchedulerState = log.folded_anew(SCHEDULER.name, SCHEDULER.new_state, world.random)
    later_ns = world.now_ns + 2 * int(FLUSH_S) * SECOND
    ours, theirs = (next_outcomes(forget_order(copied(view)), later_ns) for view in (anew, live))
    assert ours == theirs
    assert forget_counts(forget_order(anew)).encode() == forget_counts(forget_order(live)).encode()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(20))
def test_what_is_kept_of_the_ledger_can_be_verified(seed: int) -> None:
    log = grown(seed).growing
    if log.base.get("quota"):
        copy = WriterStarted(epoch=0, release="")  # stands for a copy, which a fold of everything kept ignores
        kept = [
            RecordedEvent("quota", seq, copy) if entry.is_copy else entry.record
            for seq, entry in enumerate(log.rows["quota"], log.base["quota"] + 1)
        ]
        opening = [record for record in log.carried("quota") if isinstance(record.event, BalancesOpened)]
        assert verify([*opening, *kept]).findings == []
