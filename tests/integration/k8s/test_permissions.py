"""k8s/rbac grants the two service accounts what they need and nothing else, by the API server's own reviews."""

import contextlib

import msgspec
import pytest
import yaml

from cli.dev.kube_client import Api, ApiRefused, Object
from cli.dev.local_control_plane import Cluster
from tests.integration.k8s.crd_inventory import INVENTORY, K8S
from tests.integration.k8s.service_accounts import NAMESPACE, Grants, as_account, granted

WATCH = {"list", "watch"}

OBSERVED = (  # objects that decisions read: (group, resource)
    ("", "namespaces"), ("scheduling.k8s.io", "priorityclasses"),
    ("", "services"), ("", "replicationcontrollers"), ("apps", "replicasets"), ("apps", "statefulsets"),
    ("apps", "deployments"), ("apps.kruise.io", "clonesets"), ("apps.kruise.io", "statefulsets"),
    ("policy", "poddisruptionbudgets"), ("storage.k8s.io", "storageclasses"), ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csidrivers"), ("storage.k8s.io", "csistoragecapacities"),
    ("", "nodes"), ("", "pods"), ("", "persistentvolumes"), ("", "persistentvolumeclaims"),
)  # fmt: skip
SHADOW: Grants = dict.fromkeys((*OBSERVED, *((row.group, row.plural) for row in INVENTORY)), WATCH)
GATEWAY: Grants = SHADOW | {
    ("", "nodes"): WATCH | {"get", "patch"},
    ("", "pods"): WATCH | {"get", "patch", "delete"},
    ("", "persistentvolumes"): WATCH | {"get", "patch"},
    ("", "persistentvolumeclaims"): WATCH | {"get", "patch"},
    ("", "pods/binding"): {"create"},
    ("", "pods/eviction"): {"create"},
    ("", "pods/status"): {"patch"},
    ("", "nodes/status"): {"patch"},
    ("", "events"): {"create", "get", "patch", "delete"},
    ("slo.koordinator.sh", "nodemetrics"): WATCH | {"get", "create", "patch", "delete"},
    ("slo.koordinator.sh", "nodemetrics/status"): {"patch"},
    ("slo.koordinator.sh", "nodeslos"): WATCH | {"get", "create", "patch", "delete"},
    ("topology.node.k8s.io", "noderesourcetopologies"): WATCH | {"get", "create", "patch", "delete"},
    ("scheduling.koordinator.sh", "scheduleexplanations"): WATCH | {"get", "delete"},
    ("scheduling.koordinator.sh", "scheduleexplanations/status"): {"patch"},
    ("scheduling.sigs.k8s.io", "elasticquotas"): WATCH | {"get", "create", "patch"},
    ("scheduling.sigs.k8s.io", "podgroups"): WATCH | {"get", "patch"},
    ("koordinator.sh", "elasticquotas"): WATCH | {"get", "patch"},
    ("quota.koordinator.sh", "elasticquotaprofiles"): WATCH | {"get", "patch"},
    ("scheduling.koordinator.sh", "devices"): WATCH | {"get", "create", "patch", "delete"},
    ("scheduling.koordinator.sh", "reservations"): WATCH | {"get", "create", "patch", "delete"},
    ("scheduling.koordinator.sh", "reservations/status"): {"patch"},
    ("scheduling.koordinator.sh", "podmigrationjobs"): WATCH | {"get", "create", "patch", "delete"},
    ("scheduling.koordinator.sh", "podmigrationjobs/status"): {"patch"},
    ("scheduling.koordinator.sh", "clusternetworktopologies default"): {"get"},
    ("scheduling.koordinator.sh", "clusternetworktopologies/status default"): {"patch"},
    ("analysis.koordinator.sh", "recommendations"): WATCH | {"get"},
    ("analysis.koordinator.sh", "recommendations/status"): {"patch"},
}
CONFIGURATION: Grants = {("", "configmaps"): WATCH}  # in koordinator-system alone
CHECKPOINT: Grants = {("", "configmaps koordstream-checkpoint"): {"create", "get", "patch"}}
LEASE = {
    ("coordination.k8s.io", "leases"): {"create"},
    ("coordination.k8s.io", "leases koordstream"): {"get", "update"},
}
REJECTIONS: Grants = {  # one Event about each ConfigMap that may be rejected
    ("", "events koord-descheduler-config.dace68fa2aff6782"): {"create", "get", "patch"},
    ("", "events koord-scheduler-config.148e44e4cb5b17e0"): {"create", "get", "patch"},
    ("", "events slo-controller-config.a00cb6d499b2cca7"): {"create", "get", "patch"},
}


@pytest.fixture(scope="module", autouse=True)
def without_webhooks(installed: Cluster) -> None:
    """The cluster is shared: another test may have left the rights that webhooks need."""
    installed.kubectl("delete", "--ignore-not-found", "-f", K8S / "webhooks" / "rbac.yaml")


@pytest.fixture(scope="module")
def gateway(installed: Cluster) -> Api:
    return as_account(installed, "koordstream-gateway")


@pytest.fixture(scope="module")
def shadow(installed: Cluster) -> Api:
    return as_account(installed, "koordstream-shadow")


def may(api: Api, verb: str, resource: str, group: str = "", namespace: str = "default", name: str = "") -> bool:
    plural, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": plural, "subresource": subresource, "name": name}
    review = {"spec": {"resourceAttributes": attributes | {"namespace": namespace}}}
    answer = api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_the_gateway_has_only_the_rights_of_its_effects_in_its_namespace(gateway: Api) -> None:
    assert granted(gateway, NAMESPACE) == GATEWAY | CONFIGURATION | CHECKPOINT | REJECTIONS | LEASE


def test_the_gateway_applies_the_checkpoint_and_no_other_config_map(
    installed: Cluster, gateway: Api, shadow: Api
) -> None:
    def applied(api: Api, name: str, text: str) -> int:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}}
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}?fieldManager=koordstream&force=true"
        with api.session() as session:
            data = msgspec.json.encode(body | {"data": {"checkpoint.json": text}})
            return session.send("PATCH", path, data, {"Content-Type": "application/apply-patch+yaml"})[0]

    with contextlib.suppress(ApiRefused):  # the cluster is shared: another test may have left one
        installed.api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/configmaps/koordstream-checkpoint")
    assert applied(gateway, "koordstream-checkpoint", "first") == 201
    assert applied(gateway, "koordstream-checkpoint", "second") == 200
    assert applied(gateway, "koord-scheduler-config", "forged") == 403
    assert applied(shadow, "koordstream-checkpoint", "third") == 403


def test_in_other_namespaces_the_gateway_reads_no_config_maps(gateway: Api) -> None:
    assert granted(gateway, "default") == GATEWAY


def test_the_shadow_account_only_reads(shadow: Api) -> None:
    assert granted(shadow, NAMESPACE) == SHADOW | CONFIGURATION
    assert granted(shadow, "default") == SHADOW


@pytest.mark.parametrize(
    ("verb", "resource", "group"),
    [
        ("get", "secrets", ""),
        ("list", "secrets", ""),
        ("create", "serviceaccounts/token", ""),
        ("create", "pods", ""),
        ("update", "pods", ""),
        ("deletecollection", "pods", ""),
        ("create", "pods/exec", ""),
        ("create", "nodes", ""),
        ("delete", "nodes", ""),
        ("get", "nodes/proxy", ""),
        ("get", "configmaps", ""),
        ("create", "configmaps", ""),
        ("create", "bindings", ""),
        ("delete", "namespaces", ""),
        ("impersonate", "users", ""),
        ("impersonate", "serviceaccounts", ""),
        ("escalate", "clusterroles", "rbac.authorization.k8s.io"),
        ("bind", "clusterroles", "rbac.authorization.k8s.io"),
        ("create", "clusterrolebindings", "rbac.authorization.k8s.io"),
        ("patch", "customresourcedefinitions", "apiextensions.k8s.io"),
        ("create", "priorityclasses", "scheduling.k8s.io"),
        ("create", "mutatingwebhookconfigurations", "admissionregistration.k8s.io"),
        ("get", "leases", "coordination.k8s.io"),
        ("deletecollection", "reservations", "scheduling.koordinator.sh"),
        ("patch", "clustercolocationprofiles", "config.koordinator.sh"),
    ],
)
def test_neither_account_has_the_right(gateway: Api, shadow: Api, verb: str, resource: str, group: str) -> None:
    assert not may(gateway, verb, resource, group)
    assert not may(shadow, verb, resource, group)


def test_the_gateway_cannot_grant_itself_more(gateway: Api) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/koordstream-gateway"
    everything = {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    with pytest.raises(ApiRefused) as refused:
        gateway.call("PATCH", path, everything)
    assert refused.value.status == 403


def test_the_gateway_reads_watched_resources_and_writes_a_condition(gateway: Api, shadow: Api) -> None:
    for row in INVENTORY:
        for api in (gateway, shadow):
            api.call("GET", f"/apis/{row.group}/v1alpha1/{row.plural}?limit=1")
    collection = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
    report: Object = {"metadata": {"name": "reported-by-the-gateway"}, "spec": {}}
    report |= {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
    with pytest.raises(ApiRefused, match="forbidden"):
        shadow.call("POST", collection, report)
    gateway.call("POST", collection, report)
    try:
        status = {"status": {"updateTime": "2026-07-01T12:00:00Z"}}
        stored = gateway.call("PATCH", f"{collection}/reported-by-the-gateway/status", status)
        assert stored["status"] == status["status"]
    finally:
        gateway.call("DELETE", f"{collection}/reported-by-the-gateway")


@pytest.mark.parametrize("file", ["checkpoint.yaml", "config-reader.yaml", "gateway.yaml", "lease.yaml", "shadow.yaml"])
def test_each_rule_has_a_comment_with_its_purpose(file: str) -> None:
    text = (K8S / "rbac" / file).read_text()
    rules = [rule for part in yaml.safe_load_all(text) for rule in part.get("rules", ())]
    lines = text.splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("  - apiGroups:")]
    assert len(starts) == len(rules)
    assert all(lines[index - 1].startswith("  # ") for index in starts)
