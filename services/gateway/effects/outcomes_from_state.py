"""Outcomes of intents that follow from the State, without a request to the API server. Pure: no input or output."""

from collections.abc import Collection

from services.gateway.effects import outcome_events
from services.gateway.effects.intent_types import Intent, object_ref
from services.gateway.kube_api.resources import NODES
from services.gateway.state import GatewayState
from shared.events import Cause, Draft, Event
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable


def outcome_from_state(state: GatewayState, intent: Intent) -> Event | None:
    """Returns the outcome that follows from observations alone, or None if a request is needed."""
    match intent:
        case PodPlaced(pod_uid=uid, pod=key, node=node):
            pod = state.pod(key, uid)
            # The scheduler placed the pod after its observation, so a pod that the State lacks was deleted since.
            if pod is None:
                return outcome_events.rejected(intent, f"{key} is gone")
            if pod.node:
                on_it = pod.node == node
                return (
                    outcome_events.bound(intent)
                    if on_it
                    else outcome_events.rejected(intent, f"{key} is bound to {pod.node} already")
                )
            # The API server accepts a binding to a node that does not exist.
            if node not in state.known.get(NODES.name, {}):
                return outcome_events.rejected(intent, f"there is no node {node}")
        case PodUnschedulable(pod_uid=uid, pod=key):
            pod = state.pod(key, uid)
            if pod is None or pod.node:
                return outcome_events.superseded(intent)
        case EvictionRequested(pod_uid=uid, pod=key):
            pod = state.pod(key, uid)
            if pod is None:
                return outcome_events.evicted(intent)
            if pod.terminating:
                # Perhaps by us: a crash may have come between the response and the append. So it spends budget.
                return outcome_events.evicted(intent, pod)
        case FieldsDesired(resource=resource, name=key, uid=uid) if uid:
            known = state.known.get(resource, {}).get(key)
            if known is not None and known.uid != uid:
                return outcome_events.superseded(intent)
    return None


def superseded_outcomes(state: GatewayState, in_flight: Collection[Cause]) -> list[Draft]:
    """Returns the outcomes of desired states that a newer one has replaced, except those that are being written."""
    return [
        outcome_events.outcome_draft(cause, desired, outcome_events.superseded(desired))
        for cause, desired in state.intents.superseded.items()
        if cause not in in_flight
    ]


def refused_outcomes(state: GatewayState) -> list[Draft]:
    """Returns the outcomes of intents that their contexts may not carry."""
    return [Draft(outcome, cause, outcome.pod_uid or None) for cause, outcome in state.intents.refused.items()]


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
