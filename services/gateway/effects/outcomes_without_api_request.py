"""Outcomes of intents that follow from the State, without a request to the API server. Pure: no input or output."""

from collections.abc import Collection

from services.gateway.effects import outcome_events
from services.gateway.effects.intent_types import DesiredState, Intent, OneShot, object_ref
from services.gateway.kube_api.resources import NODES
from services.gateway.state import GatewayState
from shared.events import Cause, Draft, Event
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable


def outcome_from_state(state: GatewayState, intent: Intent) -> Event | None:
    """Returns the outcome that follows from observations alone, or None if a request is needed."""
    match intent:
        case PodPlaced(node=node):
            # The API server accepts a binding to a node that does not exist.
            if (shown := outcome_observed(state, intent)) is None and node not in state.known.get(NODES.name, {}):
                return outcome_events.rejected(intent, f"there is no node {node}")
            return shown
        case PodUnschedulable(pod_uid=uid, pod=key):
            pod = state.pod(key, uid)
            if pod is None or pod.node:
                return outcome_events.superseded(intent)
        case EvictionRequested():
            return outcome_observed(state, intent)
        case FieldsDesired(resource=resource, name=key, uid=uid) if uid:
            known = state.known.get(resource, {}).get(key)
            if known is not None and known.uid != uid:
                return outcome_events.superseded(intent)
    return None


def outcome_observed(state: GatewayState, intent: OneShot) -> Event | None:
    """Returns the outcome that the newest observation of the pod shows, or None if it shows none."""
    pod = state.pod(intent.pod, intent.pod_uid)
    if isinstance(intent, EvictionRequested):
        if pod is None:
            return outcome_events.evicted(intent)
        # Perhaps by us: a crash may have come between the response and the append. So it spends budget.
        return outcome_events.evicted(intent, pod) if pod.terminating else None
    # The scheduler placed the pod after its observation, so a pod that the State lacks was deleted since.
    if pod is None:
        return outcome_events.rejected(intent, f"{intent.pod} is gone")
    return outcome_events.of_node(intent, pod.node)


def superseded_outcomes(state: GatewayState, in_flight: Collection[Cause]) -> list[Draft]:
    """Returns the outcomes of desired states that a newer one has replaced, of their own shard or of another one, except
    those that are being written.
    """
    intents = state.intents
    outranked = ((cause, intents.desired.get(cause) or intents.in_force(cause)) for cause in intents.outranked)
    return [
        outcome_events.outcome_draft(cause, desired, outcome_events.superseded(desired))
        for cause, desired in (*intents.superseded.items(), *outranked)
        if cause not in in_flight
    ]


def refused_outcomes(state: GatewayState) -> list[Draft]:
    """Returns the outcomes of intents that their contexts may not carry."""
    return [Draft(outcome, cause, outcome.pod_uid or None) for cause, outcome in state.intents.refused.items()]


def without_object(state: GatewayState, watched: Collection[str]) -> set[Cause]:
    """Returns the desired states in force whose object, of a watched resource, does not exist; one of the same name
    with another uid than the desired state names is another object.
    """
    intents = state.intents
    unwritten = (*intents.given_up.items(), *((cause, desired) for cause, (desired, _) in intents.suppressed.items()))
    # An ObjectDesired that was not written would create its object, so the object's absence does not end it.
    without_creation = [(cause, desired) for cause, desired in unwritten if not isinstance(desired, ObjectDesired)]
    return {
        cause
        for cause, desired in (*intents.applied.items(), *without_creation)
        if object_ref(desired).resource in watched and not _has_object(state, desired)
    }


def _has_object(state: GatewayState, desired: DesiredState) -> bool:
    resource, key = object_ref(desired)
    known = state.known.get(resource, {}).get(key)
    uid = desired.uid if isinstance(desired, FieldsDesired) else ""
    return known is not None and uid in ("", known.uid)
