"""The intent to write a Kubernetes Event about an object, which `kubectl describe` shows.

One Event object for each thing to report, which the next change of it overwrites: messages do not pile up.
"""

from shared.events.intents import ObjectDesired
from shared.kube.instants import SECOND, instant_text
from shared.kube.resource_names import KUBERNETES_EVENTS
from shared.runtime.intent_rights import IntentRight

FIELDS = (
    "involvedObject", "type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "source",
    "reportingComponent", "reportingInstance", "action",
)  # fmt: skip
"""The fields that such an intent sets, for its right."""

_MAX_MESSAGE = 1024  # bytes that the API accepts


def event_rights(name: str) -> tuple[IntentRight, IntentRight]:
    """Returns the rights to write and to delete Events.

    Args:
        name: as in IntentRight; one that ends in `*` names every Event that begins so.
    """
    return (
        IntentRight(ObjectDesired, KUBERNETES_EVENTS, fields=FIELDS, name=name),
        IntentRight(ObjectDesired, KUBERNETES_EVENTS, deletes=True, name=name),
    )


def event_intent(
    key: str,
    about: dict[str, str],
    *,
    reason: str,
    message: str,
    component: str,
    now_ns: int,
    type_: str = "Warning",
    action: str = "",
) -> ObjectDesired:
    """Returns the intent.

    Args:
        key: `namespace/name` of the Event; that of a cluster-wide object is in `default`.
        about: reference to the object: apiVersion, kind, name, uid and, where it has one, namespace.
        component: the reporter, as `koordstream/scheduler`.
        now_ns: nanoseconds since the epoch.
        action: one word for what was done, as in upstream's Events; empty for none.
    """
    now = instant_text(now_ns // SECOND * SECOND)
    body = {
        "involvedObject": about,
        "type": type_,
        "reason": reason,
        "message": message.encode()[:_MAX_MESSAGE].decode(errors="ignore"),
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
        **({"action": action} if action else {}),
    }
    return ObjectDesired(resource=KUBERNETES_EVENTS, name=key, body=body)
