"""The events that outlast their partition in `descheduling`: the configuration, cases that count, detectors, jobs that
passed arbitration and have not ended, open drains with the ends of their jobs, and newest desired states.
"""

from collections.abc import Hashable

from services.descheduler.state.descheduler_state import DeschedulerState
from shared.events import RecordedEvent
from shared.events.descheduling import (
    AnomaliesObserved,
    DeschedulingCycled,
    EvictionCaseClosed,
    EvictionCaseOpened,
    EvictionStepDecided,
)
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.events.migration import DrainEnded, DrainRequested, MigrationArbitrated, MigrationEnded
from shared.log.retention_carry_forward import CarryForward, Holds, Kept


def subject(record: RecordedEvent) -> Hashable:
    """Returns what a decision is about: a field group of an object, else its type."""
    match record.event:
        case EvictionCaseOpened(case=case) | EvictionCaseClosed(case=case):
            return type(record.event), case
        case EvictionStepDecided(case=case, step=step):
            return EvictionStepDecided, case, step
        case AnomaliesObserved(of=of):
            return AnomaliesObserved, of
        case FieldsDesired(resource=resource, name=name, fields=fields):
            return resource, name, fields
        case ObjectDesired(resource=resource, name=name):
            return resource, name, ""
        case MigrationArbitrated(job_uid=uid) | MigrationEnded(job_uid=uid):
            return MigrationArbitrated, uid
        case DrainRequested(node=node) | DrainEnded(node=node):
            return DrainRequested, node
    return type(record.event)


def holds(state: DeschedulerState, _: Kept) -> Holds:
    """Returns the test of an event by the State: decisions as the State has them."""

    def still_holds(record: RecordedEvent) -> bool:
        match record.event:
            case EvictionCaseOpened(case=case) | EvictionStepDecided(case=case):
                return case in state.cases.cases
            case EvictionCaseClosed(case=case):
                return case in state.cases.cases and state.cases.cases[case].closed is not None
            case DeschedulingCycled(cycle=cycle):
                return cycle == state.cycle
            case FieldsDesired() | ObjectDesired() as event:
                return state.is_newest(event)
            case MigrationArbitrated(job_uid=uid):
                return uid in state.migration.passed
            case MigrationEnded(job=job):
                return job in state.migration.drain_ends
            case DrainRequested(node=node):
                drain = state.migration.drains.get(node)
                return drain is not None and drain.seq == record.seq
            case ConfigApplied(digest=digest):
                return digest == state.config_digest
            case ConfigRejected(digest=digest):
                return digest == state.refused_digest
        return True

    return still_holds


CARRY_FORWARD = CarryForward(
    kinds=(
        EvictionCaseOpened,
        EvictionStepDecided,
        EvictionCaseClosed,
        MigrationArbitrated,
        MigrationEnded,
        DrainRequested,
        AnomaliesObserved,
        DeschedulingCycled,
        FieldsDesired,
        ObjectDesired,
        ConfigApplied,
        ConfigRejected,
        WriterStarted,
    ),
    ends=(DrainEnded,),
    subject=subject,
    holds=holds,
    with_positions=True,
)
