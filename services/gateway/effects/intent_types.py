"""Types of intents, and the object (`ObjectRef`) or field group of an object (`FieldGroup`) that an intent is about."""

from typing import NamedTuple

from services.gateway.kube_api.resources import PODS
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable

DesiredState = PodUnschedulable | FieldsDesired | ObjectDesired
"""An intent that gives the values of a field group; only the newest of a field group counts."""

OneShot = PodPlaced | EvictionRequested
"""An intent with a one-shot effect: a binding or an eviction."""

Intent = OneShot | DesiredState
"""An event that the gateway carries out on the Kubernetes API."""

POD_SCHEDULED = "PodScheduled"
"""Field group of PodUnschedulable: the pod's condition of that type."""


class ObjectRef(NamedTuple):
    """Resource and key of an object in the API."""

    resource: str
    key: str


class FieldGroup(NamedTuple):
    """A group of fields of an object that one context sets together."""

    resource: str
    key: str
    context: str
    fields: str


def field_group(context: str, event: DesiredState) -> FieldGroup:
    """Returns the field group that a desired state of a context sets."""
    match event:
        case PodUnschedulable(pod=key):
            return FieldGroup(PODS.name, key, context, POD_SCHEDULED)
        case FieldsDesired(resource=resource, name=key, fields=fields):
            return FieldGroup(resource, key, context, fields)
        case ObjectDesired(resource=resource, name=key):
            return FieldGroup(resource, key, context, "")


def object_ref(event: Intent) -> ObjectRef:
    """Returns the object that an intent is about; effects on one object run in order."""
    if isinstance(event, FieldsDesired | ObjectDesired):
        return ObjectRef(event.resource, event.name)
    return ObjectRef(PODS.name, event.pod)
