"""The events that outlast their partition in `cluster`: live objects, and the outcomes of intents that are still in
their logs.

An intent and its outcome leave together: a fold that found the intent alone would carry it out again. A deletion stays
while other logs have events that are older: it ends the values that were desired of the object before.
"""

from collections.abc import Hashable

from services.gateway.known_objects import KnownObject, identity_of
from services.gateway.kube_api.decoding import KeptObject
from services.gateway.kube_api.resources import NODE_METRICS, NODES
from services.gateway.state import GatewayState
from shared.events import RecordedEvent
from shared.events.cluster import (
    DELETED_BY,
    OUTCOMES,
    AdmissionMissed,
    ClusterIdentified,
    EvictionPaused,
    EvictionsHeld,
    EvictionsReleased,
    InitialListCompleted,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.log import WriterStarted
from shared.kube.instants import SECOND
from shared.kube.resource_names import RESERVATIONS
from shared.log.cluster_subjects import subject
from shared.log.retention_carry_forward import CarryForward, Holds, Kept

DELETIONS = (NodeDeleted, NodeMetricDeleted, ObjectDeleted)
"""Those of objects of which other services desire values by name; a pod's uid is part of what is desired of it."""

EVICTION_CONTROL = (EvictionPaused, EvictionsHeld, EvictionsReleased)

MAX_CLOCK_SKEW_NS = 86_400 * SECOND


def holds(state: GatewayState, kept: Kept) -> Holds:
    """Returns the test of an event by the State: an object as the State has it, an outcome whose intent is kept."""

    def is_known(found: KnownObject | None, uid: str, kept_object: KeptObject) -> bool:
        return found is not None and found.identity == identity_of(uid, kept_object)

    def still_holds(record: RecordedEvent) -> bool:
        match record.event:
            case PodObserved(pod=key, pod_uid=uid):
                # Also where a later observation replaces it: the pod was there, so decisions before that are about it.
                return (pod := state.pods.get(key)) is not None and pod.uid == uid
            case NodeObserved(node=name, object=node):
                return is_known(state.known.get(NODES.name, {}).get(name), node.metadata.uid, node)
            case NodeMetricObserved(node=name, object=metric):
                return is_known(state.known.get(NODE_METRICS.name, {}).get(name), metric.metadata.uid, metric)
            case ObjectObserved(resource=resource, name=name, uid=uid, object=body):
                found = state.known.get(resource, {}).get(name)
                return is_known(found, uid, body) or (resource == RESERVATIONS and _is_there(found, uid))
            case AdmissionMissed(uid=uid):
                return uid in state.late_admitted
            case EvictionPaused():
                return record.cause in state.evictions.paused
            case EvictionsHeld():
                return state.evictions.hold is not None and record.seq == state.evictions.hold.seq
            case EvictionsReleased():
                return record.seq == state.evictions.released_seq
            case PodEvicted(pod_uid=uid) if record.cause and state.evictions.counts(record.cause, uid):
                return True
            case _ if isinstance(record.event, OUTCOMES):
                return record.cause is not None and kept.has(record.cause)
            case _ if isinstance(record.event, DELETIONS):
                return record.at_ns >= kept.since_ns - MAX_CLOCK_SKEW_NS
        return True

    return still_holds


def _is_there(found: KnownObject | None, uid: str) -> bool:
    """Like a pod: also where a later observation replaces it, since the placement of a Reservation is about this one."""
    return found is not None and found.uid == uid


def _subject(record: RecordedEvent) -> Hashable:
    if isinstance(record.event, AdmissionMissed):
        return AdmissionMissed, record.event.uid
    if isinstance(record.event, EvictionPaused):
        return EvictionPaused, record.cause
    if isinstance(record.event, EvictionsHeld | EvictionsReleased):
        return type(record.event)
    if isinstance(record.event, DELETIONS):
        return type(record.event), record.seq
    return subject(record)


CARRY_FORWARD = CarryForward(
    kinds=(
        *DELETED_BY,
        *DELETIONS,
        *OUTCOMES,
        *EVICTION_CONTROL,
        AdmissionMissed,
        ClusterIdentified,
        InitialListCompleted,
        WriterStarted,
    ),
    ends=(PodDeleted,),
    subject=_subject,
    holds=holds,
)
