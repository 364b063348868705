"""The subjects of the events of `cluster`, for the rules by which they outlast their partition."""

from collections.abc import Hashable

from shared.events import RecordedEvent
from shared.events.cluster import (
    OUTCOMES,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)


def subject(record: RecordedEvent) -> Hashable:
    """Returns the object that an observation is about, each outcome by itself, or the type of an event of its own."""
    event = record.event
    match event:
        case PodObserved(pod=key) | PodDeleted(pod=key):
            return PodObserved, key
        case NodeObserved(node=key) | NodeDeleted(node=key):
            return NodeObserved, key
        case NodeMetricObserved(node=key) | NodeMetricDeleted(node=key):
            return NodeMetricObserved, key
        case ObjectObserved(resource=resource, name=key) | ObjectDeleted(resource=resource, name=key):
            return resource, key
    return (type(event), record.seq) if isinstance(event, OUTCOMES) else type(event)
