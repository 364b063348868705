"""Intents and outcomes, and what an intent is about: an object (`Place`), and for a level a field group of it (`Slot`)."""

from typing import NamedTuple

from services.gateway.kube_api.resources import PODS
from shared.events import Event
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable

Level = PodUnschedulable | FieldsDesired | ObjectDesired
"""An intent about how a field group of an object must be; only the newest counts."""

Act = PodPlaced | EvictionRequested
"""An intent to do something once."""

Intent = Act | Level
"""What the world must be made to agree with."""

POD_SCHEDULED = "PodScheduled"
"""The field group of PodUnschedulable: the pod's condition of that type."""

SCHEDULING_INTENTS: tuple[type[Event], ...] = (PodPlaced, PodUnschedulable)
ANY_INTENTS: tuple[type[Event], ...] = (EvictionRequested, FieldsDesired, ObjectDesired)
"""Intents that every context may append."""


class Place(NamedTuple):
    """An object's place in the API."""

    resource: str
    key: str


class Slot(NamedTuple):
    """What a level is about: a field group, as one context sees it."""

    resource: str
    key: str
    context: str
    fields: str


def slot_of(context: str, event: Level) -> Slot:
    """What a level is about."""
    match event:
        case PodUnschedulable(pod=key):
            return Slot(PODS.name, key, context, POD_SCHEDULED)
        case FieldsDesired(resource=resource, name=key, fields=fields):
            return Slot(resource, key, context, fields)
        case ObjectDesired(resource=resource, name=key):
            return Slot(resource, key, context, "")


def place_of(event: Intent) -> Place:
    """The object that an intent is about; effects on one object run in order."""
    if isinstance(event, FieldsDesired | ObjectDesired):
        return Place(event.resource, event.name)
    return Place(PODS.name, event.pod)
