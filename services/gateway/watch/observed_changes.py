"""Observations to append: the difference between what the watches delivered and what the log records.

Pure: State and observed objects in, events out.
"""

from collections.abc import Collection, Mapping

from services.gateway.effects.intents import Place
from services.gateway.kube_api.resources import NODE_METRICS, NODES, PODS
from services.gateway.state import GatewayState, Known, digest_of
from services.gateway.watch.field_filter import Seen
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


def differences(state: GatewayState, news: Mapping[Place, Seen | None]) -> list[Draft]:
    """What the log does not know yet.

    Args:
        news: the newest that was seen of each place, None when nothing is there, in the order of the sightings.
    """
    drafts: list[Draft] = []
    for (resource, key), seen in news.items():
        before = state.known.get(resource, {}).get(key)
        if seen is None:
            if before is not None:
                drafts.append(gone(resource, key, before.uid))
        elif before is None or before != Known(seen.uid, digest_of(seen.object)):
            if before is not None and before.uid != seen.uid:  # deleted and made anew between two sightings
                drafts.append(gone(resource, key, before.uid))
            drafts.append(observed(resource, seen))
    return drafts


def absent(state: GatewayState, resource: str, listed: Collection[str]) -> list[Place]:
    """The places of a resource that the log knows and a complete list did not name: what is there is gone."""
    return [Place(resource, key) for key in state.known.get(resource, {}) if key not in listed]


def observed(resource: str, seen: Seen) -> Draft:
    """The event that an object was seen as it is."""
    kept = seen.object
    if isinstance(kept, Pod):
        return Draft(PodObserved(pod=seen.key, pod_uid=seen.uid, object=kept), correlation=seen.uid)
    if isinstance(kept, Node):
        return Draft(NodeObserved(node=seen.key, object=kept))
    if isinstance(kept, NodeMetric):
        return Draft(NodeMetricObserved(node=seen.key, object=kept))
    return Draft(ObjectObserved(resource=resource, name=seen.key, uid=seen.uid, object=kept))


def gone(resource: str, key: str, uid: str) -> Draft:
    """The event that an object is gone."""
    if resource == PODS.name:
        return Draft(PodDeleted(pod=key, pod_uid=uid), correlation=uid)
    if resource == NODES.name:
        return Draft(NodeDeleted(node=key, node_uid=uid))
    if resource == NODE_METRICS.name:
        return Draft(NodeMetricDeleted(node=key))
    return Draft(ObjectDeleted(resource=resource, name=key, uid=uid))
