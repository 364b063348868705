"""A fold from the oldest kept event is the State of ledger and scheduler, while retention drops what they wrote."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.service import SERVICE as GATEWAY
from services.quota_ledger.accounting.verify import holds, verify
from services.quota_ledger.service import SERVICE as LEDGER
from services.quota_ledger.state.ledger_state import LedgerState
from services.scheduler.service import SERVICE as SCHEDULER
from shared.events import Cause, Event, RecordedEvent
from shared.events.log import WriterStarted
from shared.events.quota import BalancesOpened
from tests.property.quota_simulation import World
from tests.support.hypothesis_examples import examples
from tests.support.kept_log import GrowingLog

CONTEXTS = ("cluster", "quota", "scheduling")


class RetainedWorld(World):
    """A world whose events are also appended to a log that retention cuts."""

    def __init__(self, seed: int) -> None:
        self.growing = GrowingLog((GATEWAY, LEDGER, SCHEDULER))
        self.random = Random(seed)
        super().__init__(seed)

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
        if world.random.random() < 0.05:
            world.drop()
    return world


def forget_residue(state: LedgerState) -> LedgerState:
    """Removes what dates changes before the oldest kept event: see docs/log.md."""
    state.placements = {}
    for entry in state.pods.entries.values():
        entry.since = 0
    return state


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(40))
def test_a_fold_from_the_opening_balances_is_the_live_ledger(seed: int) -> None:
    world = grown(seed)
    log = world.growing
    live: LedgerState = log.followers[LEDGER.name].state
    anew: LedgerState = log.folded_anew(LEDGER.name, LEDGER.new_state, world.random)
    for uid, entry in live.pods.entries.items():
        if entry.observed is not None and entry.observed.bound:
            # The charge of a pod that runs rests on its node, whatever became of its placement.
            ours, theirs = anew.desired(uid), live.desired(uid)
            assert theirs is None if ours is None else ours.matches(theirs)
    assert [*holds(anew.projection)] == []
    assert anew.projection.balances.by_account == live.projection.balances.by_account
    assert forget_residue(anew).encode() == forget_residue(live).encode()


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
