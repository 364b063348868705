"""`koord uninstall` on a real API server: objects written as the gateway writes them, beside those of a user."""

import asyncio
import json
from typing import Any

import yaml
from click.testing import CliRunner, Result

from cli.dev.fake_nodes import TOPOLOGIES, create_nodes, node_object, topology_object
from cli.dev.local_control_plane import Cluster
from cli.main import koord
from services.gateway.effects.field_and_object_writes import write_fields, write_object
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.raw_object_requests import put_object
from services.gateway.needed_rbac_rules import CONFIGURATION_NAME
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.kube.resource_names import NODE_METRICS, NODE_SLOS, NODE_TOPOLOGIES, QUOTAS
from tests.cluster.fixtures import StartCluster
from tests.support.pods import written_pod

PREFIX = "quota.scheduling.koordinator.sh/"
CERTIFICATES = "/api/v1/namespaces/koordinator-system/secrets/koordstream-webhook-certs"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koordstream"
DEPLOYMENTS = "/apis/apps/v1/namespaces/koordinator-system/deployments"
WEBHOOKS = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{CONFIGURATION_NAME}"
BATCH = {"kubernetes.io/batch-cpu": "1000"}
SPEC = {"min": {"cpu": "8"}, "max": {"cpu": "16"}}


def uninstall(cluster: Cluster, *arguments: str) -> Result:
    folder = str(cluster.folder / "no-system")
    return CliRunner().invoke(
        koord, ["uninstall", "--kubeconfig", str(cluster.kubeconfig()), "--dir", folder, *arguments]
    )


async def write(kubeconfig: str, *desired: ObjectDesired | FieldsDesired) -> None:
    async with KubeApi(kubeconfig) as api:
        for each in desired:
            done = write_fields(api, each, "") if isinstance(each, FieldsDesired) else write_object(api, each, "", "")
            outcome, _ = await done
            assert type(outcome).__name__ == "DesiredStateApplied", outcome
        labels = {"app.kubernetes.io/managed-by": "koordstream"}
        name = {"name": "koordstream-webhook-certs", "labels": labels}
        await put_object(api, CERTIFICATES, {"kind": "Secret", "apiVersion": "v1", "metadata": name}, None, "secrets")
        lease = {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"name": "koordstream", "labels": labels},
            "spec": {"holderIdentity": "log/killed@1", "leaseDurationSeconds": 1},
        }
        await put_object(api, LEASE, lease, None, "leases")
        kind = {"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1"}
        webhook = {
            "name": "dead.koordinator.sh",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [
                {
                    "apiGroups": ["*"],
                    "apiVersions": ["*"],
                    "operations": ["*"],
                    "resources": ["elasticquotas", "nodeslos"],
                }
            ],
        }
        configuration = kind | {"metadata": {"name": CONFIGURATION_NAME, "labels": labels}, "webhooks": [webhook]}
        await put_object(api, WEBHOOKS, configuration, None, "validatingwebhookconfigurations")


def system_writes() -> list[ObjectDesired | FieldsDesired]:
    """Returns what the services want of the API, by the events of a small cluster with node `a`."""
    amounts = {"status": {"capacity": BATCH, "allocatable": BATCH}}
    labels = {PREFIX + "profile": "gone", PREFIX + "is-root": "true"}
    zones = topology_object("a")["zones"]
    zones[0]["resources"].append(
        {"name": "kubernetes.io/batch-cpu", "capacity": "500", "allocatable": "500", "available": "500"}
    )
    return [
        ObjectDesired(resource=NODE_SLOS, name="a", body={"spec": {"resourceUsedThresholdWithBE": {"enable": True}}}),
        ObjectDesired(resource=NODE_METRICS, name="a", body={}),
        FieldsDesired(resource=NODE_METRICS, name="a", fields="status", subresource="status", patch={"status": {"updateTime": "2026-01-01T00:00:00Z"}}),
        FieldsDesired(resource="nodes", name="a", fields="amounts", subresource="status", patch=amounts),
        FieldsDesired(resource="nodes", name="a", fields="metadata", patch={"metadata": {"annotations": {"node.koordinator.sh/x": "1"}}}),
        FieldsDesired(resource=NODE_TOPOLOGIES, name="a", fields="zones", patch={"zones": zones}),
        ObjectDesired(resource=QUOTAS, name="default/unused-root", body={"metadata": {"labels": labels}, "spec": SPEC}),
        ObjectDesired(resource=QUOTAS, name="default/used-root", body={"metadata": {"labels": labels}, "spec": SPEC}),
        FieldsDesired(resource=QUOTAS, name="default/team", fields="s", patch={"metadata": {"annotations": {PREFIX + "runtime": "{}"}}, "status": {"used": {"cpu": "1"}}}),
        FieldsDesired(resource="pods", name="default/waits", fields="n", subresource="status", patch={"status": {"nominatedNodeName": "a"}}),
        ObjectDesired(resource="configmaps", name="koordinator-system/koordstream-checkpoint", body={"data": {"checkpoint.json": "{}"}}),
    ]  # fmt: skip


def create_users_objects(cluster: Cluster) -> None:
    create_nodes(cluster.api, [node_object("a", annotations={"mine": "1"})])
    cluster.api.call("POST", TOPOLOGIES, topology_object("a"))
    team = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team", "namespace": "default", "labels": {PREFIX + "parent": "used-root"}},
        "spec": SPEC,
    }
    slo = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": "mine"}, "spec": {}}
    cluster.kubectl(
        "apply", "-f", "-", stdin=yaml.safe_dump_all([team, slo, written_pod("waits", namespace="default")])
    )


def left(cluster: Cluster, *arguments: str) -> dict[tuple[str, str], str]:
    found: list[dict[str, Any]] = json.loads(uninstall(cluster, "-o", "json", *arguments).stdout)
    return {(each["resource"].partition(".")[0], each["name"]): each["action"] for each in found}


def test_what_the_system_made_is_removed_and_what_a_user_made_stays(own_cluster: StartCluster) -> None:
    cluster = own_cluster(installed=True)
    create_users_objects(cluster)
    asyncio.run(write(str(cluster.kubeconfig()), *system_writes()))
    planned = {
        ("validatingwebhookconfigurations", "koordstream-webhooks"): "delete",
        ("secrets", "koordinator-system/koordstream-webhook-certs"): "delete",
        ("leases", "koordinator-system/koordstream"): "delete",
        ("elasticquotas", "default/team"): "remove fields",
        ("elasticquotas", "default/unused-root"): "delete",
        ("elasticquotas", "default/used-root"): "keep",
        ("nodemetrics", "a"): "delete",
        ("noderesourcetopologies", "a"): "remove fields",
        ("nodes", "a"): "remove fields",
        ("nodeslos", "a"): "delete",
        ("pods", "default/waits"): "remove fields",
        ("configmaps", "koordinator-system/koordstream-checkpoint"): "delete",
    }
    assert left(cluster) == planned
    assert "11 objects to change; nothing was written. Add --yes to do it." in uninstall(cluster).stdout
    assert left(cluster) == planned, "a dry run writes nothing"

    labels = {"app": "gateway"}
    container = {"name": "gateway", "image": "koordstream"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    deployment = {"metadata": {"name": "koordstream-gateway"}, "spec": spec}
    cluster.api.call("POST", DEPLOYMENTS, deployment)
    dry = uninstall(cluster)
    assert "11 objects to change" in dry.stdout
    scale = "kubectl -n koordinator-system scale deployment koordstream-gateway --replicas=0"
    assert dry.stderr.startswith("This may change yet, and --yes is refused while a gateway runs: the Deployment")
    assert scale in dry.stderr
    refused = uninstall(cluster, "--yes")
    assert (refused.exit_code, scale in refused.stderr, left(cluster) == planned) == (1, True, True)
    cluster.api.call("DELETE", f"{DEPLOYMENTS}/koordstream-gateway")

    assert "the system with log log, killed@1, holds the Lease" in uninstall(cluster).stderr
    done = uninstall(cluster, "--yes")
    assert done.exit_code == 0, done.output
    assert "waiting up to 1 s to see whether it still renews it" in done.stderr
    assert left(cluster) == {("elasticquotas", "default/used-root"): "keep"}
    assert "team names it as its parent" in uninstall(cluster).stdout
    node = cluster.api.call("GET", "/api/v1/nodes/a")
    assert (
        node["status"]["allocatable"] == node["status"]["capacity"] == {"cpu": "32", "memory": "256Gi", "pods": "110"}
    )
    assert node["metadata"]["annotations"] == {"mine": "1"}
    assert cluster.api.call("GET", f"{TOPOLOGIES}/a")["zones"] == topology_object("a")["zones"]
    path = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas/team"
    team = cluster.api.call("GET", path)
    assert team["spec"] == SPEC
    assert PREFIX + "runtime" not in team["metadata"]["annotations"]
    assert cluster.kubectl("get", "nodeslo", "-o", "name").split() == ["nodeslo.slo.koordinator.sh/mine"]

    cluster.api.call("DELETE", path)
    assert left(cluster) == {("elasticquotas", "default/used-root"): "delete"}
    assert uninstall(cluster, "--yes").exit_code == 0
    assert uninstall(cluster).stdout == "nothing to remove\n"
