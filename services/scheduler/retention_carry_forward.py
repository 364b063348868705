"""The events that outlast their partition in `scheduling`: of each pod that is there the newest decisions, and what
is in force.
"""

from collections.abc import Hashable

from services.scheduler.explain.answer_schedule_explanations import FIELDS as ANSWER
from services.scheduler.state.newest_desired_states import WRITTEN
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import RecordedEvent
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.events.scheduling import (
    CycleDecided,
    GangPlaced,
    PlacementCompared,
    PlacementReleased,
    PlacementReserved,
    PodNominated,
    PodPlaced,
    PodUnschedulable,
    UnitStartPlanned,
)
from shared.kube.resource_names import EXPLANATIONS
from shared.log.retention_carry_forward import CarryForward, Holds, Kept

_OF_PODS = (PodPlaced, PodUnschedulable, PodNominated, EvictionRequested, PlacementCompared)


def subject(record: RecordedEvent) -> Hashable:
    """Returns what a decision is about: each cycle by itself, a pod for each type of decision about it."""
    event = record.event
    match event:
        case CycleDecided() | GangPlaced():
            return type(event), record.seq
        case UnitStartPlanned(unit=unit, scheduler=scheduler, plugin=plugin):
            return UnitStartPlanned, scheduler, plugin, unit
        case FieldsDesired(resource=resource, name=name, fields=fields):
            return resource, name, fields
        case PlacementReserved(holder_uid=uid):
            return PlacementReserved, uid
        case _ if isinstance(event, _OF_PODS):
            return type(event), event.pod_uid
    return type(event)


def holds(view: SchedulerState, _: Kept) -> Holds:
    """Returns the test of an event by the State: decisions by which the State is as it is."""
    cycles = {pod.tried_seq for pod in view.pods.values()}
    of_units = {each.seq for kept in (view.gang_waits, view.planned_starts.values()) for each in kept}
    of_units.add(view.hold_released_seq)

    def still_holds(record: RecordedEvent) -> bool:
        event = record.event
        match event:
            case CycleDecided(cycle=cycle):
                return record.seq in cycles or cycle == view.cycle
            case GangPlaced() | UnitStartPlanned() | PlacementReleased():
                return record.seq in of_units
            case FieldsDesired():
                return _is_desired(view, record, event)
            case ConfigApplied(digest=digest):
                return digest == view.config_digest
            case ConfigRejected(digest=digest):
                return digest == view.refused_digest
            case PlacementReserved(holder_uid=uid):
                return (
                    (holder := view.pods.get(uid)) is not None
                    and holder.hold is not None
                    and holder.placed_seq == record.seq
                )
            case _ if isinstance(event, _OF_PODS):
                pod = view.pods.get(event.pod_uid)
                if pod is None:
                    return record.seq == view.hold_released_seq
                match event:
                    case PodPlaced():
                        return pod.placed_seq == record.seq
                    case EvictionRequested():
                        return pod.eviction_seq == record.seq
                    case PodNominated(node=node):
                        return pod.nominated == node
                    case PodUnschedulable(code=code):
                        return pod.condition_code == code
        return True

    return still_holds


def _is_desired(view: SchedulerState, record: RecordedEvent, event: FieldsDesired) -> bool:
    """Reports whether the object is there of which the fields are desired; what it is now, the gateway compares."""
    match event.resource:
        case "pods":
            return event.uid in view.pods
        case resource if resource == EXPLANATIONS and event.fields == ANSWER:
            answer = view.explanation_answers.get(event.name)
            return answer is not None and answer.at_ns == record.at_ns
        case resource if resource in WRITTEN:
            there = view.objects.get(resource, {}).get(event.name)
            has_object = there is not None and there["metadata"].get("uid", "") == event.uid
            return has_object and view.writes.is_newest(event, record)
    return True


CARRY_FORWARD = CarryForward(
    kinds=(
        CycleDecided,
        GangPlaced,
        UnitStartPlanned,
        *_OF_PODS,
        PlacementReserved,
        PlacementReleased,
        FieldsDesired,
        ConfigApplied,
        ConfigRejected,
        WriterStarted,
    ),
    subject=subject,
    holds=holds,
    with_positions=True,
)
