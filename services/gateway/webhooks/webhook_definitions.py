"""Webhooks: path, rules and feature gate of each, and its entry in a webhook configuration object.

Source: spec/api.md 5.1. Names and paths are upstream's.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from services.gateway.webhooks.admission_handlers import AdmissionHandlers as Handlers
from services.gateway.webhooks.admission_handlers import Handler
from shared.admission.feature_gates import Gates
from shared.admission.quota.quota_evaluation import GATE as EVALUATION_GATE

Raw = dict[str, Any]

TIMEOUT_S = 2
"""`timeoutSeconds` of each webhook: the API server waits no longer for a response."""

SLO_CONFIG_LABEL = {"koordinator.sh/configmap-type": "slo-controller-config"}
_QUOTA_GROUPS = ("scheduling.sigs.k8s.io", "koordinator.sh")
_QUOTA = "scheduling-sigs-k8s-io-v1alpha1-elasticquota"


_ALL: Mapping[str, Any] = {}


class Webhook(NamedTuple):
    """One webhook.

    Attributes:
        groups, version, resource, scope, operations: the requests that the API server sends to it.
        handle: the rules; returns the changed object, or None for no change.
        mutates: its response may change the object.
        code: HTTP status of a rejection.
        exempts: objects of the system's own namespace, and of namespaces labelled `control-plane`, are not sent to it.
        selector: label selector of the objects that are sent to it.
        evaluates_quota: an admitted pod is added to its quota's usage, unless the request is a dry run.
    """

    name: str
    path: str
    gate: str
    groups: tuple[str, ...]
    version: str
    resource: str
    scope: str
    operations: tuple[str, ...]
    handle: Handler
    mutates: bool = False
    code: int = 400
    exempts: bool = False
    selector: Mapping[str, Any] = _ALL
    evaluates_quota: bool = False


WEBHOOKS = (
    Webhook("mpod-create.koordinator.sh", "/mutate-pod", "PodMutatingWebhook", ("",), "v1", "pods", "Namespaced",
            ("CREATE",), Handlers.mutate_pod, mutates=True, code=500, exempts=True),
    Webhook("melasticquota.koordinator.sh", f"/mutate-{_QUOTA}", "ElasticMutatingWebhook", _QUOTA_GROUPS,
            "v1alpha1", "elasticquotas", "Namespaced", ("CREATE",), Handlers.mutate_quota, mutates=True),
    Webhook("mnode-status.koordinator.sh", "/mutate-node-status", "NodeMutatingWebhook", ("",), "v1", "nodes/status",
            "Cluster", ("UPDATE",), Handlers.mutate_node_status, mutates=True, code=500),
    Webhook("mreservation-create.koordinator.sh", "/mutate-reservation", "ReservationMutatingWebhook",
            ("scheduling.koordinator.sh",), "v1alpha1", "reservations", "Cluster", ("CREATE",),
            Handlers.mutate_reservation, mutates=True, code=500),
    Webhook("vpod.koordinator.sh", "/validate-pod", "PodValidatingWebhook", ("",), "v1", "pods", "Namespaced",
            ("CREATE", "UPDATE"), Handlers.validate_pod, exempts=True, evaluates_quota=True),
    Webhook("velasticquota.koordinator.sh", f"/validate-{_QUOTA}", "ElasticValidatingWebhook", _QUOTA_GROUPS,
            "v1alpha1", "elasticquotas", "Namespaced", ("CREATE", "UPDATE", "DELETE"), Handlers.validate_quota),
    Webhook("vnode.koordinator.sh", "/validate-node", "NodeValidatingWebhook", ("",), "v1", "nodes", "Cluster",
            ("UPDATE",), Handlers.validate_node),
    Webhook("vconfigmap.koordinator.sh", "/validate-configmap", "ConfigMapValidatingWebhook", ("",), "v1", "configmaps",
            "Namespaced", ("CREATE", "UPDATE", "DELETE"), Handlers.validate_config_map,
            selector={"matchLabels": SLO_CONFIG_LABEL}),
)  # fmt: skip


def enabled_webhooks(gates: Gates) -> Iterator[Webhook]:
    """Yields the webhooks whose feature gate is on."""
    evaluates_quota = EVALUATION_GATE in gates
    return (
        webhook._replace(evaluates_quota=webhook.evaluates_quota and evaluates_quota)
        for webhook in WEBHOOKS
        if webhook.gate in gates
    )


class WebhookEndpoint(NamedTuple):
    """Address for the API server: a Service (namespace, name, port), or a URL outside of the cluster."""

    service: tuple[str, str, int] | None
    url: str = ""

    def client_config(self, path: str, authorities: str) -> Raw:
        """Returns `clientConfig` of a webhook; `authorities` is PEM in base64."""
        if self.service is None:
            return {"url": self.url.rstrip("/") + path, "caBundle": authorities}
        namespace, name, port = self.service
        service = {"namespace": namespace, "name": name, "path": path, "port": port}
        return {"service": service, "caBundle": authorities}


def configuration(
    webhook: Webhook, endpoint: WebhookEndpoint, authorities: str, namespace: str, failure_policy: str
) -> Raw:
    """Returns a webhook's entry in a configuration object.

    It has every field that the API server would default: the stored entry then equals it, and a comparison finds no
    difference to write.
    """
    exempt = [
        {"key": "control-plane", "operator": "DoesNotExist"},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]},
    ]
    entry: Raw = {
        "name": webhook.name,
        "clientConfig": endpoint.client_config(webhook.path, authorities),
        "rules": [
            {
                "apiGroups": list(webhook.groups),
                "apiVersions": [webhook.version],
                "resources": [webhook.resource],
                "operations": list(webhook.operations),
                "scope": webhook.scope,
            }
        ],
        "failurePolicy": failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": exempt} if webhook.exempts else {},
        "objectSelector": dict(webhook.selector),
        "sideEffects": "NoneOnDryRun" if webhook.evaluates_quota else "None",
        "timeoutSeconds": TIMEOUT_S,
        "admissionReviewVersions": ["v1"],
    }
    return entry | {"reinvocationPolicy": "Never"} if webhook.mutates else entry
