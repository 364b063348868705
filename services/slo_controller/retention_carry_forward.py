"""The events that outlast their partition in `slo`: the newest decision on each node, newest desired states, the
configuration.
"""

from collections.abc import Hashable

from services.slo_controller.state.slo_state import SloState
from shared.events import RecordedEvent
from shared.events.base import without_basis
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.events.slo import (
    NodeOvercommitted,
    NodeReportsBelieved,
    NodeReportsIgnored,
    OvercommitmentFrozen,
    OvercommitmentResumed,
    RecommendationEnded,
    RecommendationUpdated,
)
from shared.log.retention_carry_forward import CarryForward, Holds, Kept


def subject(record: RecordedEvent) -> Hashable:
    """Returns what a decision is about: a node, a recommendation, a field group of an object."""
    match record.event:
        case NodeOvercommitted(node=node):
            return NodeOvercommitted, node
        case NodeReportsIgnored(node=node) | NodeReportsBelieved(node=node):
            return NodeReportsIgnored, node
        case RecommendationUpdated(name=name) | RecommendationEnded(name=name):
            return RecommendationUpdated, name
        case OvercommitmentResumed():
            return OvercommitmentFrozen
        case FieldsDesired(resource=resource, name=name, fields=fields):
            return resource, name, fields
        case ObjectDesired(resource=resource, name=name):
            return resource, name, ""
    return type(record.event)


def holds(state: SloState, _: Kept) -> Holds:
    """Returns the test of an event by the State: decisions as the State has them."""

    def still_holds(record: RecordedEvent) -> bool:
        match record.event:
            case NodeOvercommitted(node=node) as event:
                return state.decided.get(node) == without_basis(event)
            case NodeReportsIgnored(node=node) as event:
                return state.ignored.get(node) == without_basis(event)
            case RecommendationUpdated(name=name) as event:
                return state.recommended.get(name) == without_basis(event)
            case FieldsDesired() | ObjectDesired() as event:
                return state.is_newest(event)
            case OvercommitmentFrozen():
                return state.frozen
            case ConfigApplied(digest=digest):
                return digest == state.config_digest
            case ConfigRejected(digest=digest):
                return digest == state.rejected_digest
        return True

    return still_holds


CARRY_FORWARD = CarryForward(
    kinds=(
        NodeOvercommitted,
        NodeReportsIgnored,
        OvercommitmentFrozen,
        RecommendationUpdated,
        FieldsDesired,
        ObjectDesired,
        ConfigApplied,
        ConfigRejected,
        WriterStarted,
    ),
    ends=(NodeReportsBelieved, OvercommitmentResumed, RecommendationEnded),
    subject=subject,
    holds=holds,
    with_positions=True,
)
