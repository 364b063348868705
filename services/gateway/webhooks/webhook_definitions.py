"""Which webhooks there are: where they are served, what they are asked about, and the gate that switches each on.

Source: spec/api.md 5.1. Names and paths are upstream's.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from services.gateway.webhooks.handlers import Answer, Desk
from shared.admission.feature_gates import Gates
from shared.admission.quota.quota_evaluation import GATE as EVALUATES

Raw = dict[str, Any]

TIMEOUT_S = 2
"""How long the API server waits for an answer."""

SLO_CONFIG_LABEL = {"koordinator.sh/configmap-type": "slo-controller-config"}
_QUOTA_GROUPS = ("scheduling.sigs.k8s.io", "koordinator.sh")
_QUOTA = "scheduling-sigs-k8s-io-v1alpha1-elasticquota"


_ALL: Mapping[str, Any] = {}


class Hook(NamedTuple):
    """One webhook.

    Attributes:
        groups, version, resource, scope, operations: what it is asked about.
        mutates: whether its answer may change the object.
        code: of the HTTP status with which it refuses.
        exempts: whether objects of the system's own namespace, and of those labelled `control-plane`, pass unasked.
        selector: of the objects that it is asked about.
        measures: whether a pod that it lets in is noted in its quota, unless it is a dry run.
    """

    name: str
    path: str
    gate: str
    groups: tuple[str, ...]
    version: str
    resource: str
    scope: str
    operations: tuple[str, ...]
    answer: Answer
    mutates: bool = False
    code: int = 400
    exempts: bool = False
    selector: Mapping[str, Any] = _ALL
    measures: bool = False


HOOKS = (
    Hook("mpod-create.koordinator.sh", "/mutate-pod", "PodMutatingWebhook", ("",), "v1", "pods", "Namespaced",
         ("CREATE",), Desk.mutate_pod, mutates=True, code=500, exempts=True),
    Hook("melasticquota.koordinator.sh", f"/mutate-{_QUOTA}", "ElasticMutatingWebhook", _QUOTA_GROUPS,
         "v1alpha1", "elasticquotas", "Namespaced", ("CREATE",), Desk.mutate_quota, mutates=True),
    Hook("mnode-status.koordinator.sh", "/mutate-node-status", "NodeMutatingWebhook", ("",), "v1", "nodes/status",
         "Cluster", ("UPDATE",), Desk.mutate_node_status, mutates=True, code=500),
    Hook("mreservation-create.koordinator.sh", "/mutate-reservation", "ReservationMutatingWebhook",
         ("scheduling.koordinator.sh",), "v1alpha1", "reservations", "Cluster", ("CREATE",), Desk.mutate_reservation,
         mutates=True, code=500),
    Hook("vpod.koordinator.sh", "/validate-pod", "PodValidatingWebhook", ("",), "v1", "pods", "Namespaced",
         ("CREATE", "UPDATE"), Desk.validate_pod, exempts=True, measures=True),
    Hook("velasticquota.koordinator.sh", f"/validate-{_QUOTA}", "ElasticValidatingWebhook", _QUOTA_GROUPS,
         "v1alpha1", "elasticquotas", "Namespaced", ("CREATE", "UPDATE", "DELETE"), Desk.validate_quota),
    Hook("vnode.koordinator.sh", "/validate-node", "NodeValidatingWebhook", ("",), "v1", "nodes", "Cluster",
         ("UPDATE",), Desk.validate_node),
    Hook("vconfigmap.koordinator.sh", "/validate-configmap", "ConfigMapValidatingWebhook", ("",), "v1", "configmaps",
         "Namespaced", ("CREATE", "UPDATE", "DELETE"), Desk.validate_config_map,
         selector={"matchLabels": SLO_CONFIG_LABEL}),
)  # fmt: skip


def served(gates: Gates) -> Iterator[Hook]:
    """The webhooks whose gate is on."""
    measures = EVALUATES in gates
    return (hook._replace(measures=hook.measures and measures) for hook in HOOKS if hook.gate in gates)


class Place(NamedTuple):
    """Where the API server finds us: a Service (namespace, name, port), or an address outside of the cluster."""

    service: tuple[str, str, int] | None
    url: str = ""

    def client(self, path: str, authorities: str) -> Raw:
        """`clientConfig` of a webhook; `authorities` is PEM in base64."""
        if self.service is None:
            return {"url": self.url.rstrip("/") + path, "caBundle": authorities}
        namespace, name, port = self.service
        service = {"namespace": namespace, "name": name, "path": path, "port": port}
        return {"service": service, "caBundle": authorities}


def configuration(hook: Hook, place: Place, authorities: str, namespace: str, failure_policy: str) -> Raw:
    """A webhook's entry in a configuration object, with every field that the API server would default."""
    exempt = [
        {"key": "control-plane", "operator": "DoesNotExist"},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]},
    ]
    entry: Raw = {
        "name": hook.name,
        "clientConfig": place.client(hook.path, authorities),
        "rules": [
            {
                "apiGroups": list(hook.groups),
                "apiVersions": [hook.version],
                "resources": [hook.resource],
                "operations": list(hook.operations),
                "scope": hook.scope,
            }
        ],
        "failurePolicy": failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": exempt} if hook.exempts else {},
        "objectSelector": dict(hook.selector),
        "sideEffects": "NoneOnDryRun" if hook.measures else "None",
        "timeoutSeconds": TIMEOUT_S,
        "admissionReviewVersions": ["v1"],
    }
    return entry | {"reinvocationPolicy": "Never"} if hook.mutates else entry
