"""The events that outlast their partition in `audit`: the last checkpoint, and the newest desired states that copy
it.
"""

from collections.abc import Hashable

from services.audit.last_signed_checkpoint_state import AuditState
from shared.events import RecordedEvent
from shared.events.audit import CheckpointSigned
from shared.events.intents import ObjectDesired
from shared.events.log import WriterStarted
from shared.log.retention_carry_forward import CarryForward, Holds, Kept


def subject(record: RecordedEvent) -> Hashable:
    """Returns the object of a desired state; of all else there is one."""
    event = record.event
    return (event.resource, event.name) if isinstance(event, ObjectDesired) else type(event)


def holds(state: AuditState, _: Kept) -> Holds:
    """Returns the test of an event by the State: the checkpoint that the State has."""
    return lambda record: not isinstance(record.event, CheckpointSigned) or record.seq == state.signed_seq


CARRY_FORWARD = CarryForward(kinds=(CheckpointSigned, ObjectDesired, WriterStarted), subject=subject, holds=holds)
