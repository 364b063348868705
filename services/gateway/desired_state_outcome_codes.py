"""Results of desired states in the gateway's State: ended, applied, given up, or suppressed by shadow mode."""

from typing import NamedTuple

from services.gateway.effects.intent_types import DesiredState
from shared.events import RecordedEvent
from shared.events.cluster import (
    DesiredStateApplied,
    DesiredStateFailed,
    DesiredStateSuppressed,
    IntentRefused,
    MissingPermission,
)

ENDED, APPLIED, GIVEN_UP = -1, 0, -2
"""Results of a desired state that an outcome records; any other number is the seq of a DesiredStateSuppressed."""


class Suppressed(NamedTuple):
    """A desired state that shadow mode did not write, and the `cluster` seq of that outcome."""

    desired: DesiredState
    seq: int


class EarlyOutcome(NamedTuple):
    """Outcomes of an intent that has not been read yet.

    Attributes:
        result: of the last outcome: ENDED, APPLIED, GIVEN_UP, or the seq of a DesiredStateSuppressed. ENDED is final.
        applied: one of the outcomes was APPLIED, which is final for a desired state that ends once it is applied.
    """

    result: int
    applied: bool


def result_of(record: RecordedEvent) -> int:
    """Returns the result of a desired state that an outcome records."""
    if isinstance(record.event, DesiredStateSuppressed):
        return record.seq
    # A refused one is folded again as a declared one once a release declares it: it is then due like one given up.
    if isinstance(record.event, DesiredStateFailed | MissingPermission | IntentRefused):
        return GIVEN_UP
    return APPLIED if isinstance(record.event, DesiredStateApplied) else ENDED
