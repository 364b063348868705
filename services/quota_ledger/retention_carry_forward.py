"""The events that outlast their partition in `quota`: the newest desired states, evictions without an outcome, the
settings, and the balances as a whole.

A balance is a sum over the whole log: it is carried forward as opening balances, exact after the last dropped event.
"""

from collections.abc import Hashable

from services.quota_ledger.accounting.opening_balances_after_retention import LedgerBalances
from services.quota_ledger.state.ledger_state import OWN, LedgerState
from services.quota_ledger.state.published_status import CREATED, RELEASED
from shared.events import RecordedEvent
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, WriterStarted
from shared.events.quota import BalancesOpened
from shared.log.retention_carry_forward import CarryForward, Holds, Kept, Opening


def subject(record: RecordedEvent) -> Hashable:
    """Returns the object of a desired state, or the seq of an eviction, each of which has an outcome of its own; of all
    else there is one.
    """
    match record.event:
        case FieldsDesired(resource=resource, name=name, fields=fields):
            return resource, name, fields
        case ObjectDesired(resource=resource, name=name):
            return resource, name, ""
        case EvictionRequested():
            return EvictionRequested, record.seq
    return type(record.event)


def holds(state: LedgerState, _: Kept) -> Holds:
    """Returns the test of an event by the State: the newest patch of an object, an eviction without an outcome."""
    patches = state.published.patches

    def still_holds(record: RecordedEvent) -> bool:
        match record.event:
            case FieldsDesired(fields=fields) if fields == RELEASED:
                return False  # the body that it ended is older, and gone before it
            case FieldsDesired(resource=resource, name=name):
                patch = patches.get(f"{resource}/{name}")
                return patch is not None and patch.at_ns == record.at_ns
            case ObjectDesired(resource=resource, name=name):
                patch = patches.get(f"{resource}/{name}{CREATED}")
                return patch is not None and patch.at_ns == record.at_ns
            case EvictionRequested():
                return record.seq in state.evictions.requested
        return True

    return still_holds


CARRY_FORWARD = CarryForward(
    kinds=(FieldsDesired, ObjectDesired, EvictionRequested, ConfigApplied, WriterStarted),
    subject=subject,
    holds=holds,
    with_positions=True,
    opening=Opening(kinds=(*OWN, BalancesOpened), begin=lambda state: LedgerBalances(state.projection.empty())),
)
