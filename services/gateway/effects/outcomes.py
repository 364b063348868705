"""What the gateway appends: the difference between what was seen and what the log says, and how an intent ended.

Pure: State and what was seen in, events out. Which HTTP answer leads to which outcome is in effects.py.
"""

from collections.abc import Collection

from services.gateway.effects.intents import Act, Intent, Level, place_of, slot_of
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
    EvictionRefused,
    EvictionSuppressed,
    MissingPermission,
    PodBound,
    PodEvicted,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable

# -- what can be said of an intent without asking the API


def verdict(state: GatewayState, intent: Intent) -> Event | None:
    """The outcome that follows from what was observed alone, or None when the API must be asked.

    An observation outranks an outcome: what was seen to be so, or can never be so again, needs no request.
    """
    match intent:
        case PodPlaced(pod_uid=uid, pod=key, node=node):
            pod = state.pods.get(uid)
            if pod is None:  # the placement rests on its observation: it was there, and is gone
                return rejected(intent, f"{key} is gone")
            if pod.node:
                on_it = pod.node == node
                return bound(intent) if on_it else rejected(intent, f"{key} is bound to {pod.node} already")
            if node not in state.known.get(NODES.name, {}):  # the API server would bind to any name
                return rejected(intent, f"there is no node {node}")
        case PodUnschedulable(pod_uid=uid):
            pod = state.pods.get(uid)
            if pod is None or pod.node:
                return superseded(intent)
        case EvictionRequested(pod_uid=uid):
            pod = state.pods.get(uid)
            if pod is None or pod.leaving:
                return evicted(intent)
        case FieldsDesired(resource=resource, name=key, uid=uid) if uid:
            known = state.known.get(resource, {}).get(key)
            if known is not None and known.uid != uid:
                return superseded(intent)
    return None


def supersessions(state: GatewayState, taken: Collection[Cause]) -> list[Draft]:
    """Outcomes of the levels that a newer one has replaced, apart from those that are being written at this moment."""
    return [answer(cause, level, superseded(level)) for cause, level in state.superseded.items() if cause not in taken]


def ownerless(state: GatewayState, followed: Collection[str]) -> set[Cause]:
    """Levels held, or withheld, for objects of followed resources that are not there."""
    # An object that is still to be made is not gone.
    withheld = {c: level for c, (level, _) in state.withheld.items() if not isinstance(level, ObjectDesired)}
    places = {cause: place_of(level) for cause, level in (*state.held.items(), *withheld.items())}
    return {
        cause
        for cause, (resource, key) in places.items()
        if resource in followed and key not in state.known.get(resource, {})
    }


# -- outcomes


def answer(cause: Cause, intent: Intent, outcome: Event) -> Draft:
    """The outcome as it is appended: it names its intent, and belongs to the pod's story if there is one."""
    return Draft(outcome, cause, uid_of(intent) or None)


def bound(intent: PodPlaced) -> PodBound:
    """The pod is on its node."""
    return PodBound(pod=intent.pod, pod_uid=intent.pod_uid, node=intent.node)


def evicted(intent: EvictionRequested) -> PodEvicted:
    """The pod is going away or gone."""
    return PodEvicted(pod=intent.pod, pod_uid=intent.pod_uid)


def written(level: Level) -> DesiredStateApplied:
    """The object agrees with the level."""
    resource, key, _, fields = slot_of("", level)
    return DesiredStateApplied(resource=resource, name=key, fields=fields)


def superseded(level: Level) -> DesiredStateSuperseded:
    """A newer level came first, or the object is gone."""
    resource, key, _, fields = slot_of("", level)
    return DesiredStateSuperseded(resource=resource, name=key, fields=fields)


def rejected(intent: Intent, reason: str) -> BindRejected | EvictionRefused | DesiredStateRejected:
    """The world cannot be made to agree, however often it is asked."""
    match intent:
        case PodPlaced(pod=key, pod_uid=uid):
            return BindRejected(pod=key, pod_uid=uid, reason=reason)
        case EvictionRequested(pod=key, pod_uid=uid):
            return EvictionRefused(pod=key, pod_uid=uid, reason=reason)
        case _:
            resource, key, _, fields = slot_of("", intent)
            return DesiredStateRejected(resource=resource, name=key, reason=reason, fields=fields)


def failed(intent: Intent, reason: str) -> BindFailed | EvictionFailed | DesiredStateFailed:
    """The API server gave no answer in time."""
    match intent:
        case PodPlaced(pod=key, pod_uid=uid):
            return BindFailed(pod=key, pod_uid=uid, reason=reason)
        case EvictionRequested(pod=key, pod_uid=uid):
            return EvictionFailed(pod=key, pod_uid=uid, reason=reason)
        case _:
            resource, key, _, fields = slot_of("", intent)
            return DesiredStateFailed(resource=resource, name=key, reason=reason, fields=fields)


def withheld(intent: Intent) -> BindSuppressed | EvictionSuppressed | DesiredStateSuppressed:
    """Nothing is written in shadow mode."""
    match intent:
        case PodPlaced(pod=key, pod_uid=uid):
            return BindSuppressed(pod=key, pod_uid=uid)
        case EvictionRequested(pod=key, pod_uid=uid):
            return EvictionSuppressed(pod=key, pod_uid=uid)
        case _:
            resource, key, _, fields = slot_of("", intent)
            return DesiredStateSuppressed(resource=resource, name=key, fields=fields)


def not_allowed(intent: Intent, rule: str) -> MissingPermission:
    """The account lacks an RBAC rule."""
    name = intent.pod if isinstance(intent, Act | PodUnschedulable) else intent.name
    return MissingPermission(name=name, rule=rule, pod_uid=uid_of(intent))


def uid_of(intent: Intent) -> str:
    """The pod that an intent is about, if it is about one."""
    return "" if isinstance(intent, FieldsDesired | ObjectDesired) else intent.pod_uid
