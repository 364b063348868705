"""The events that outlast their partition in `metrics-*`: newest desired states, and the last report of a node that
fell silent.

Agents report all the time, so of a partition that is hours old mostly nothing holds: dropping it takes no room.
"""

from collections.abc import Hashable

from services.metrics_ingest.agent_reports.metrics_ingest_state import ReportIngestState, status_time_ns
from shared.domain.node_metric_status import STATUS
from shared.events import RecordedEvent
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import WriterStarted
from shared.events.metrics import NodeReported, NodeReportsExpired
from shared.kube.resource_names import NODE_METRICS
from shared.log.retention_carry_forward import CarryForward, Holds, Kept


def subject(record: RecordedEvent) -> Hashable:
    """Returns the node of a report, or the field group of a desired state.

    A report that is a desired status is not replaced by a newer one that is none.
    """
    match record.event:
        case NodeReported(node=node, status_desired=True):
            return NODE_METRICS, node, STATUS
        case NodeReported(node=node) | NodeReportsExpired(node=node):
            return NodeReported, node
        case FieldsDesired(resource=resource, name=name, fields=fields):
            return resource, name, fields
        case ObjectDesired(resource=resource, name=name):
            return resource, name, ""
    return type(record.event)


def holds(state: ReportIngestState, _: Kept) -> Holds:
    """Returns the test of an event by the State: a report that is the newest, a status that no later one replaces."""

    def still_holds(record: RecordedEvent) -> bool:
        match record.event:
            case NodeReported(node=node, at_ns=at_ns, status_desired=status_desired):
                is_status = status_desired and state.status_desired_ns.get(node) == at_ns
                return is_status or state.last_recorded_ns.get(node) == at_ns
            case FieldsDesired(resource=resource, name=name, fields=fields) as event if (resource, fields) == (
                NODE_METRICS,
                STATUS,
            ):
                return state.status_desired_ns.get(name) == status_time_ns(event)
            case ObjectDesired(name=node, body=body):
                return (node in state.specs) == (body is not None)
        return True

    return still_holds


CARRY_FORWARD = CarryForward(
    kinds=(NodeReported, FieldsDesired, ObjectDesired, WriterStarted),
    ends=(NodeReportsExpired,),
    subject=subject,
    holds=holds,
)
