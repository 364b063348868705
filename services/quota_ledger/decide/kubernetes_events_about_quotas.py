"""Kubernetes Events about ElasticQuotas that are rejected, or of which a label, an annotation or a resource has no
effect: `kubectl describe` shows them on the object. One Event an object; it is deleted once the object is in force as
it is written, or gone.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from services.quota_ledger.service_manifest import COMPONENT, OBJECT_EVENTS
from services.quota_ledger.state.ledger_state import LedgerState
from services.quota_ledger.state.published_status import CREATED
from shared.domain.desired_kubernetes_event import event_intent
from shared.events import Draft
from shared.events.intents import ObjectDesired
from shared.kube.quota_resources import faults_of
from shared.kube.resource_names import GUIDE_QUOTAS, KUBERNETES_EVENTS, QUOTAS

API_VERSIONS = {QUOTAS: "scheduling.sigs.k8s.io/v1alpha1", GUIDE_QUOTAS: "koordinator.sh/v1alpha1"}

MAX_EVENTS = 100
"""Events written in one call, at most."""

_COMPARED = ("involvedObject", "reason", "message")
_PREFIX = f"{KUBERNETES_EVENTS}/"


def object_events(state: LedgerState, now_ns: int) -> list[Draft]:
    """Returns the intents for the Events that differ from those last written, up to MAX_EVENTS."""
    desired = {_event_key(key): (key, reason, message) for key, reason, message in _noted(state)}
    patches = state.published.patches
    written = {
        key.removeprefix(_PREFIX).removesuffix(CREATED): patches[key].patch
        for key in sorted(patches)
        if key.startswith(_PREFIX)
    }
    drafts = []
    for event_key, (key, reason, message) in desired.items():
        intent = _intent(state, event_key, key, reason, message, now_ns)
        if _compared(written.get(event_key, {})) != _compared(intent.body or {}):
            drafts.append(Draft(intent))
    over = [key for key in written if key not in desired]
    drafts += [Draft(ObjectDesired(resource=KUBERNETES_EVENTS, name=key, body=None)) for key in over]
    return drafts[:MAX_EVENTS]


def _noted(state: LedgerState) -> Iterator[tuple[str, str, str]]:
    """Yields the key of an object, and reason and message of its Event; of one object the last counts."""
    projection = state.projection
    for name, quota in sorted(projection.lookup.quotas.items()):
        if (faults := faults_of(quota)) and (key := state.owner(name)):
            yield key, "SettingsIgnored", "; ".join(faults)
    for name, reason in sorted(projection.rejected.items()):
        if key := state.owner(name):
            force = "its last valid declaration stays in force" if name in projection.tree_of else "its pods wait"
            yield key, "QuotaRejected", f"rejected, and {force}: {reason}"
    for _, duplicates in sorted(projection.duplicates.items()):
        for key, reason in sorted(duplicates.items()):
            if key in state.quota_objects:
                yield key, "QuotaRejected", f"rejected: {reason}"


def _event_key(key: str) -> str:
    """Returns `namespace/name` of the Event about an object."""
    _, namespace, _ = key.split("/")
    return OBJECT_EVENTS.replace("*", namespace, 1).removesuffix("*") + sha256(key.encode()).hexdigest()[:16]


def _intent(state: LedgerState, event_key: str, key: str, reason: str, message: str, now_ns: int) -> ObjectDesired:
    resource, namespace, name = key.split("/")
    about = {
        "apiVersion": API_VERSIONS[resource],
        "kind": "ElasticQuota",
        "namespace": namespace,
        "name": name,
        "uid": state.quota_objects[key].uid,
    }
    return event_intent(event_key, about, reason=reason, message=message, component=COMPONENT, now_ns=now_ns)


def _compared(body: dict[str, Any]) -> list[Any]:
    return [body.get(field) for field in _COMPARED]
