"""The gateway's own webhook handlers over a recorded cluster: objects are observed as events, requests are admission
requests.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from services.gateway.webhooks.admission_handlers import AdmissionHandlers, AdmissionSettings
from services.gateway.webhooks.admission_review import Request
from services.gateway.webhooks.admission_state import (
    CLASSES,
    CONFIG_MAPS,
    NAMESPACES,
    PROFILES,
    QUOTA_PROFILES,
    AdmissionState,
)
from shared.events.cluster import NodeObserved, ObjectObserved
from shared.kube.node import Node
from shared.kube.resource_names import QUOTAS

Given = Mapping[str, Any]

NAMESPACE = "koordinator-system"
"""The namespace of the two ConfigMaps that the recorded cases contain."""

_RESOURCES = {
    "profiles": PROFILES,
    "namespaces": NAMESPACES,
    "priorityClasses": CLASSES,
    "elasticQuotas": QUOTAS,
    "elasticQuotaProfiles": QUOTA_PROFILES,
}


def handlers_of(given: Given, *, without: Iterable[str] = (), config_map: Given | None = None) -> AdmissionHandlers:
    """Returns the handlers for the cluster of a case.

    Args:
        without: gates that are on in addition; upstream's gates of the pod webhook switch steps off.
        config_map: a ConfigMap that is observed, too.
    """
    state = AdmissionState()
    for member, resource in _RESOURCES.items():
        for raw in given.get(member) or ():
            state.apply(_observed(resource, raw))
    for raw in (config_map, given.get("enhancedValidatorConfigMap")):
        if raw:
            state.apply(_observed(CONFIG_MAPS, raw))
    for raw in given.get("nodes") or ():
        state.apply(NodeObserved(node=raw["metadata"]["name"], object=msgspec.convert(raw, Node)))
    gates = frozenset(name for name, on in (given.get("gates") or {}).items() if on)
    return AdmissionHandlers(
        state,
        tuple,
        AdmissionSettings(gates | set(without), NAMESPACE, names=bool(given.get("nodeStrategyNameNeedCheck"))),
    )


def request_of(given: Given, after: Given | None, before: Given | None = None) -> Request:
    """Returns the admission request of a case.

    Args:
        after, before: the object, and on UPDATE the stored one.
    """
    metadata = (after or before or {}).get("metadata") or {}
    whole = {
        "uid": "case",
        "operation": given["operation"],
        "subResource": given.get("subResource") or "",
        "name": metadata.get("name", ""),
        "namespace": metadata.get("namespace", ""),
        "object": after,
        "oldObject": before,
    }
    return msgspec.convert(whole, Request)


def _observed(resource: str, raw: Given) -> ObjectObserved:
    metadata = raw["metadata"]
    namespace, name = metadata.get("namespace"), metadata["name"]
    key = f"{namespace}/{name}" if namespace else name
    return ObjectObserved(resource=resource, name=key, uid=metadata.get("uid", ""), object=dict(raw))
