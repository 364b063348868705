"""The Kubernetes Event by which a rejected ConfigMap is seen where it was written: `kubectl describe configmap`."""

from collections.abc import Iterable
from hashlib import sha256

from shared.domain.desired_kubernetes_event import FIELDS, event_intent
from shared.events import Draft
from shared.events.intents import ObjectDesired
from shared.events.log import ConfigRejected
from shared.kube.resource_names import KUBERNETES_EVENTS
from shared.runtime.intent_rights import IntentRight

SOURCE = "ConfigMap "
"""What a configuration's source begins with if it is a ConfigMap; its `namespace/name` follows."""


def event_key(config_map: str) -> str:
    """Returns `namespace/name` of the Event about a ConfigMap, which is the same for all of its versions."""
    return f"{config_map}.{sha256(config_map.encode()).hexdigest()[:16]}"


def event_right(config_map: str) -> IntentRight:
    """Returns the right to write the Event about one ConfigMap."""
    return IntentRight(ObjectDesired, KUBERNETES_EVENTS, fields=FIELDS, name=event_key(config_map))


def rejection_events(drafts: Iterable[Draft], *, uid: str, component: str, now_ns: int) -> list[Draft]:
    """Returns the intent to write the Event about the ConfigMap that the drafts reject; none for files.

    Args:
        drafts: of one decision about a configuration; each ConfigRejected among them is a fault of the same version.
        uid: of the ConfigMap.
        component: the reporter, as `koordstream/scheduler`.
        now_ns: nanoseconds since the epoch.
    """
    found = [draft.event for draft in drafts if isinstance(draft.event, ConfigRejected)]
    rejected = [event for event in found if event.source.startswith(SOURCE)]
    if not rejected:
        return []
    key = rejected[0].source.removeprefix(SOURCE)
    namespace, _, name = key.rpartition("/")
    faults = "; ".join(fault_of(event) for event in rejected)
    message = f"rejected, the last good one stays in force: {faults}"
    about = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name, "uid": uid}
    intent = event_intent(
        event_key(key), about, reason="ConfigRejected", message=message, component=component, now_ns=now_ns
    )
    return [Draft(intent)]


def fault_of(event: ConfigRejected) -> str:
    """Returns the place and the reason of a rejection, the place once."""
    return event.reason if not event.path or event.path in event.reason else f"{event.path}: {event.reason}"
