"""Intents that any context may append: changes to make in the cluster. The gateway completes each with an outcome.

Binding a pod is the intent `PodPlaced`, an unschedulable pod's condition is `PodUnschedulable`; both belong to the
scheduler.
"""

from typing import Any, ClassVar

from shared.events.base import Event


class EvictionRequested(Event, frozen=True, tag="koord.intents.EvictionRequested.v1"):
    """A pod must be evicted. Carried out through the Eviction API with the uid as precondition.

    Attributes:
        reason: for people and for the pod's DisruptionTarget condition.
        grace_period_s: seconds the pod gets to end; the pod's own when absent.
        deletes: the pod is deleted instead, which no disruption budget prevents; the gateway's own budgets count.
        deadline_ns: instant after which it is not carried out any more; 0 for that of the gateway.
        reservation: name of the Reservation that holds the pod's destination; it is not carried out once that is gone,
            has ended or has an owner. Empty for an eviction without a held place.
    """

    KEY: ClassVar[str] = "pod"

    pod_uid: str
    pod: str
    reason: str
    grace_period_s: int | None = None
    deletes: bool = False
    deadline_ns: int = 0
    reservation: str = ""


class FieldsDesired(Event, frozen=True, tag="koord.intents.FieldsDesired.v1"):
    """A group of fields of an existing object must have these values, until a newer desired state replaces them.

    Attributes:
        resource: plural and group, such as `nodes` or `reservations.scheduling.koordinator.sh`.
        name: `namespace/name`, or the name of a cluster-scoped object.
        fields: name of the field group; one context owns it, and only its newest desired state is written.
        patch: the values, as a JSON merge patch of the object.
        subresource: `status`, or empty for the object itself.
        uid: when given, only the object with that uid is meant.
    """

    KEY: ClassVar[str] = "name"

    resource: str
    name: str
    fields: str
    patch: dict[str, Any]
    subresource: str = ""
    uid: str = ""


class ObjectDesired(Event, frozen=True, tag="koord.intents.ObjectDesired.v1"):
    """A custom resource must exist with this content, or must not exist.

    Attributes:
        resource: plural and group, such as `reservations.scheduling.koordinator.sh`.
        body: the object without status; None when it must be gone.
        uid: when given, only the object with that uid must be gone; another one of the name stays.
    """

    KEY: ClassVar[str] = "name"

    resource: str
    name: str
    body: dict[str, Any] | None
    uid: str = ""
