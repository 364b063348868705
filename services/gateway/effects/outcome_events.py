"""The events that record the outcome of an intent.

The outcome of each HTTP response is in pod_writes.py and desired_state_writes.py.
"""

from services.gateway.effects.intent_types import DesiredState, Intent, OneShot, field_group
from services.gateway.known_objects import ObservedPod
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
from shared.kube.system_annotations import allocations_in


def outcome_draft(cause: Cause, intent: Intent, outcome: Event) -> Draft:
    """Returns the outcome to append, with its intent as the cause and the pod's uid as the correlation."""
    return Draft(outcome, cause, pod_uid_of(intent) or None)


def bound(intent: PodPlaced) -> PodBound:
    """Outcome: the pod is on its node."""
    return PodBound(
        pod=intent.pod, pod_uid=intent.pod_uid, node=intent.node, allocations=allocations_in(intent.annotations)
    )


def evicted(intent: EvictionRequested, pod: ObservedPod | None = None) -> PodEvicted:
    """Outcome: the pod is terminating or deleted. With the pod, it spends the budget of its node and workload."""
    if pod is None:
        return PodEvicted(pod=intent.pod, pod_uid=intent.pod_uid)
    return PodEvicted(
        pod=intent.pod, pod_uid=intent.pod_uid, node=pod.node, workload=pod.workload, without_node=not pod.node
    )


def applied(desired: DesiredState) -> DesiredStateApplied:
    """Outcome: the object matches the desired state."""
    resource, key, _, fields = field_group("", desired)
    return DesiredStateApplied(resource=resource, name=key, fields=fields)


def of_node(intent: PodPlaced, node: str) -> PodBound | BindRejected | None:
    """Outcome of a placement that follows from the pod's node; None without a node."""
    if not node:
        return None
    if node == intent.node:
        return bound(intent)
    return BindRejected(pod=intent.pod, pod_uid=intent.pod_uid, reason=f"{intent.pod} is bound to {node} already")


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
