"""Observations to append: the difference between what the watches delivered and what the log records.

Pure: State and observed objects in, events out.
"""

from collections.abc import Collection, Mapping

from services.gateway.effects.intent_types import ObjectRef
from services.gateway.known_objects import identity_of
from services.gateway.kube_api.resources import NODE_METRICS, NODES, PODS
from services.gateway.kube_api.unused_field_removal import ObservedObject
from services.gateway.state import GatewayState
from shared.events import Draft
from shared.events.cluster import (
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.kube.node import Node, NodeMetric
from shared.kube.pod import Pod


def differences(state: GatewayState, changes: Mapping[ObjectRef, ObservedObject | None]) -> list[Draft]:
    """Returns the events that bring the log up to date.

    Args:
        changes: the newest observation of each object, None when it does not exist, in the order of observation.
    """
    drafts: list[Draft] = []
    for (resource, key), seen in changes.items():
        before = state.known.get(resource, {}).get(key)
        if seen is None:
            if before is not None:
                drafts.append(deleted(resource, key, before.uid))
        elif before is None or before.identity != identity_of(seen.uid, seen.object):
            # A new uid: the object was deleted and created again between two observations.
            if before is not None and before.uid != seen.uid:
                drafts.append(deleted(resource, key, before.uid))
            drafts.append(observed(resource, seen))
    return drafts


def absent(state: GatewayState, resource: str, listed: Collection[str]) -> list[ObjectRef]:
    """Returns the objects of a resource that the log has and a complete list does not: they were deleted."""
    return [ObjectRef(resource, key) for key in state.known.get(resource, {}) if key not in listed]


def observed(resource: str, seen: ObservedObject) -> Draft:
    """Returns the event that records an object."""
    kept = seen.object
    if isinstance(kept, Pod):
        return Draft(PodObserved(pod=seen.key, pod_uid=seen.uid, object=kept), correlation=seen.uid)
    if isinstance(kept, Node):
        return Draft(NodeObserved(node=seen.key, object=kept))
    if isinstance(kept, NodeMetric):
        return Draft(NodeMetricObserved(node=seen.key, object=kept))
    return Draft(ObjectObserved(resource=resource, name=seen.key, uid=seen.uid, object=kept))


def deleted(resource: str, key: str, uid: str) -> Draft:
    """Returns the event that records the deletion of an object."""
    if resource == PODS.name:
        return Draft(PodDeleted(pod=key, pod_uid=uid), correlation=uid)
    if resource == NODES.name:
        return Draft(NodeDeleted(node=key, node_uid=uid))
    if resource == NODE_METRICS.name:
        return Draft(NodeMetricDeleted(node=key))
    return Draft(ObjectDeleted(resource=resource, name=key, uid=uid))
