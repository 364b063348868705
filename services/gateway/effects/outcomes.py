"""Outcomes of intents: the events, and those outcomes that follow from the State without a request.

Pure: no input or output. The outcome of each HTTP response is in pod_writes.py and object_writes.py.
"""

from collections.abc import Collection

from services.gateway.effects.intents import DesiredState, Intent, OneShot, field_group, object_ref
from services.gateway.kube_api.resources import NODES
from services.gateway.state import GatewayState
from shared.events import Cause, Draft, Event
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    BindSuppressed,
    DesiredStateApplied,
    DesiredStateFailed,
    DesiredStateRejected,
    DesiredStateSuperseded,
    DesiredStateSuppressed,
    EvictionFailed,
    EvictionRejected,
    EvictionSuppressed,
    MissingPermission,
    PodBound,
    PodEvicted,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable


def outcome_from_state(state: GatewayState, intent: Intent) -> Event | None:
    """Returns the outcome that follows from observations alone, or None if a request is needed."""
    match intent:
        case PodPlaced(pod_uid=uid, pod=key, node=node):
            pod = state.pod(key, uid)
            # The scheduler placed the pod after its observation, so a pod that the State lacks was deleted since.
            if pod is None:
                return rejected(intent, f"{key} is gone")
            if pod.node:
                on_it = pod.node == node
                return bound(intent) if on_it else rejected(intent, f"{key} is bound to {pod.node} already")
            # The API server accepts a binding to a node that does not exist.
            if node not in state.known.get(NODES.name, {}):
                return rejected(intent, f"there is no node {node}")
        case PodUnschedulable(pod_uid=uid, pod=key):
            pod = state.pod(key, uid)
            if pod is None or pod.node:
                return superseded(intent)
        case EvictionRequested(pod_uid=uid, pod=key):
            pod = state.pod(key, uid)
            if pod is None or pod.terminating:
                return evicted(intent)
        case FieldsDesired(resource=resource, name=key, uid=uid) if uid:
            known = state.known.get(resource, {}).get(key)
            if known is not None and known.uid != uid:
                return superseded(intent)
    return None


def superseded_outcomes(state: GatewayState, in_flight: Collection[Cause]) -> list[Draft]:
    """Returns the outcomes of desired states that a newer one has replaced, except those that are being written."""
    return [
        outcome_draft(cause, desired, superseded(desired))
        for cause, desired in state.intents.superseded.items()
        if cause not in in_flight
    ]


def without_object(state: GatewayState, watched: Collection[str]) -> set[Cause]:
    """Returns the applied and suppressed desired states whose object, of a watched resource, does not exist."""
    # A suppressed ObjectDesired would create its object, so the object's absence does not end it.
    suppressed = {
        c: desired for c, (desired, _) in state.intents.suppressed.items() if not isinstance(desired, ObjectDesired)
    }
    refs = {cause: object_ref(desired) for cause, desired in (*state.intents.applied.items(), *suppressed.items())}
    return {
        cause
        for cause, (resource, key) in refs.items()
        if resource in watched and key not in state.known.get(resource, {})
    }


# -- events


def outcome_draft(cause: Cause, intent: Intent, outcome: Event) -> Draft:
    """Returns the outcome to append, with its intent as the cause and the pod's uid as the correlation."""
    return Draft(outcome, cause, pod_uid_of(intent) or None)


def bound(intent: PodPlaced) -> PodBound:
    """Outcome: the pod is on its node."""
    return PodBound(pod=intent.pod, pod_uid=intent.pod_uid, node=intent.node)


def evicted(intent: EvictionRequested) -> PodEvicted:
    """Outcome: the pod is terminating or deleted."""
    return PodEvicted(pod=intent.pod, pod_uid=intent.pod_uid)


def applied(desired: DesiredState) -> DesiredStateApplied:
    """Outcome: the object matches the desired state."""
    resource, key, _, fields = field_group("", desired)
    return DesiredStateApplied(resource=resource, name=key, fields=fields)


def superseded(desired: DesiredState) -> DesiredStateSuperseded:
    """Outcome: a newer desired state replaced this one, or the object was deleted."""
    resource, key, _, fields = field_group("", desired)
    return DesiredStateSuperseded(resource=resource, name=key, fields=fields)


def rejected(intent: Intent, reason: str) -> BindRejected | EvictionRejected | DesiredStateRejected:
    """Outcome: the intent cannot be carried out; a retry would get the same answer."""
    match intent:
        case PodPlaced(pod=key, pod_uid=uid):
            return BindRejected(pod=key, pod_uid=uid, reason=reason)
        case EvictionRequested(pod=key, pod_uid=uid):
            return EvictionRejected(pod=key, pod_uid=uid, reason=reason)
        case _:
            resource, key, _, fields = field_group("", intent)
            return DesiredStateRejected(resource=resource, name=key, reason=reason, fields=fields)


def failed(intent: Intent, reason: str) -> BindFailed | EvictionFailed | DesiredStateFailed:
    """Outcome: the API server gave no answer within the deadline."""
    match intent:
        case PodPlaced(pod=key, pod_uid=uid):
            return BindFailed(pod=key, pod_uid=uid, reason=reason)
        case EvictionRequested(pod=key, pod_uid=uid):
            return EvictionFailed(pod=key, pod_uid=uid, reason=reason)
        case _:
            resource, key, _, fields = field_group("", intent)
            return DesiredStateFailed(resource=resource, name=key, reason=reason, fields=fields)


def suppressed(intent: Intent) -> BindSuppressed | EvictionSuppressed | DesiredStateSuppressed:
    """Outcome: shadow mode writes nothing."""
    match intent:
        case PodPlaced(pod=key, pod_uid=uid):
            return BindSuppressed(pod=key, pod_uid=uid)
        case EvictionRequested(pod=key, pod_uid=uid):
            return EvictionSuppressed(pod=key, pod_uid=uid)
        case _:
            resource, key, _, fields = field_group("", intent)
            return DesiredStateSuppressed(resource=resource, name=key, fields=fields)


def missing_permission(intent: Intent, rule: str) -> MissingPermission:
    """Outcome: the gateway's account lacks an RBAC rule."""
    name = intent.pod if isinstance(intent, OneShot | PodUnschedulable) else intent.name
    return MissingPermission(name=name, rule=rule, pod_uid=pod_uid_of(intent))


def pod_uid_of(intent: Intent) -> str:
    """Returns the uid of the pod that an intent is about; empty for an intent about another object."""
    return "" if isinstance(intent, FieldsDesired | ObjectDesired) else intent.pod_uid
