"""The events that the ledger records next: the difference between the desired state and its own log.

In steps; each rests on the events of the one before: quotas, then capacities and pods, then runtimes, then overuse.

Source: spec/quota.md 2.4, 5.2, 6.4, 7.3; docs/architecture.md, Charging quota.
"""

from collections.abc import Iterator

from services.quota_ledger.decide.overuse import overuse_events
from services.quota_ledger.decide.pod_changes import pod_events
from services.quota_ledger.decide.quota_changes import quota_events
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from shared.events import Draft, Event, RecordedEvent
from shared.events.quota import CapacitySet


def decide(state: LedgerState, settings: LedgerSettings, now_ns: int) -> list[Draft]:
    """Returns the next events; none when the ledger's log is up to date."""
    return structure(state, settings) or postings(state) or runtimes(state) or overuse(state, settings, now_ns)


def structure(state: LedgerState, settings: LedgerSettings) -> list[Draft]:
    """Returns the events of quotas that are created, changed, moved or deleted."""
    if not state.quotas_to_update or state.structure_decided_at == state.structure_changes:
        return []  # a rejected quota stays in quotas_to_update, and is checked again once any quota has changed
    drafts = [Draft(event) for event in quota_events(state, settings)]
    if not drafts:
        state.structure_decided_at = state.structure_changes
    return drafts


def postings(state: LedgerState) -> list[Draft]:
    """Returns the events of capacities, and of up to MAX_PODS pods."""
    return [Draft(event) for event in (*_capacities(state), *pod_events(state))]


def runtimes(state: LedgerState) -> list[Draft]:
    """Returns the events of changed runtimes; once they are folded there are none until another event."""
    return [Draft(event) for event in _runtimes(state)]


def overuse(state: LedgerState, settings: LedgerSettings, now_ns: int) -> list[Draft]:
    """Returns the events of overuse as of `now_ns`. Compares every quota, so it is called at intervals only."""
    return [Draft(event) for event in overuse_events(state, settings, now_ns)]


def caught_up(state: LedgerState, settings: LedgerSettings, now_ns: int) -> list[RecordedEvent]:
    """Decides and folds until there is nothing left to decide; for readers of the logs that run no ledger."""
    records = []
    while drafts := decide(state, settings, now_ns):
        for draft in drafts:
            seq = state.positions.get("quota", 0) + 1
            record = RecordedEvent("quota", seq, draft.event, now_ns, draft.cause)
            state.apply(record)
            records.append(record)
    return records


def _capacities(state: LedgerState) -> Iterator[Event]:
    for name in sorted(state.projection.trees):
        total = state.total(name)
        if total != state.projection.trees[name].total:
            yield CapacitySet(tree=name, total=total, source="annotation" if name else "nodes")


def _runtimes(state: LedgerState) -> Iterator[Event]:
    for name, tree in sorted(state.projection.trees.items()):
        if tree.changed_levels and (delta := tree.compute_delta()):
            yield delta.event(name)
