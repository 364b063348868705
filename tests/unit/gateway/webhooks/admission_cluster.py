"""State of a small cluster for the webhooks' tests, folded from events."""

from collections.abc import Iterable
from typing import Any

import msgspec

from services.gateway.webhooks.admission_handlers import AdmissionHandlers, AdmissionSettings, QuotaPod
from services.gateway.webhooks.admission_review import Request
from services.gateway.webhooks.admission_state import CLASSES, CONFIG_MAPS, NAMESPACES, PROFILES, AdmissionState
from shared.admission.feature_gates import gates_of
from shared.events.cluster import InitialListCompleted, NodeObserved, ObjectDeleted, ObjectObserved
from shared.kube.node import Node

SYSTEM = "koordinator-system"
QUOTAS = "elasticquotas.scheduling.sigs.k8s.io"


def observed(resource: str, name: str, *, namespace: str = "", **parts: Any) -> ObjectObserved:
    """Returns the event of an object; `labels` and `annotations` go to its metadata."""
    metadata = {"name": name, "uid": f"uid-of-{name}"} | ({"namespace": namespace} if namespace else {})
    for kind in ("labels", "annotations"):
        if kind in parts:
            metadata[kind] = parts.pop(kind)
    key = f"{namespace}/{name}" if namespace else name
    return ObjectObserved(resource=resource, name=key, uid=f"uid-of-{name}", object={"metadata": metadata, **parts})


def gone(resource: str, key: str) -> ObjectDeleted:
    """Returns the event of a deleted object."""
    return ObjectDeleted(resource=resource, name=key, uid=f"uid-of-{key.rpartition('/')[2]}")


def quota(name: str, parent: str = "", *, is_parent: bool = False, least: str = "5") -> ObjectObserved:
    """An ElasticQuota of ten cores at most."""
    prefix = "quota.scheduling.koordinator.sh/"
    labels = {prefix + "is-parent": str(is_parent).lower()} | ({prefix + "parent": parent} if parent else {})
    return observed(QUOTAS, name, namespace="web", labels=labels, spec={"max": {"cpu": "10"}, "min": {"cpu": least}})


def node(name: str, **labels: str) -> NodeObserved:
    """A node with labels."""
    return NodeObserved(node=name, object=msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node))


def cluster() -> AdmissionState:
    """Namespaces web and koordinator-system, a class, a profile for batch pods of web."""
    state = AdmissionState()
    for event in (
        observed(NAMESPACES, "web", labels={"env": "prod"}),
        observed(NAMESPACES, SYSTEM),
        observed(CLASSES, "koord-batch", value=5000),
        observed(
            PROFILES,
            "batch",
            spec={"selector": {"matchLabels": {"app": "batch"}}, "qosClass": "BE", "priorityClassName": "koord-batch"},
        ),
        observed(CONFIG_MAPS, "slo-controller-config", namespace=SYSTEM, data={}),
        InitialListCompleted(objects=5),
    ):
        state.apply(event)
    return state


def handlers_of(
    state: AdmissionState, gates: str = "", pods: Iterable[QuotaPod] = (), account: str = ""
) -> AdmissionHandlers:
    """Returns the handlers over a State."""
    return AdmissionHandlers(state, lambda: pods, AdmissionSettings(gates_of(gates), SYSTEM, account=account))


def admission_request(
    operation: str, after: Any = None, before: Any = None, namespace: str = "web", user: str = ""
) -> Request:
    """Returns an admission request."""
    whole = {
        "uid": "u", "operation": operation, "namespace": namespace, "object": after, "oldObject": before,
        "userInfo": {"username": user},
    }  # fmt: skip
    return msgspec.convert(whole, Request)
