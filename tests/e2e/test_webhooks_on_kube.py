"""The gateway's webhooks behind a real API server: profiles are applied, invalid objects are rejected with our
messages."""

import asyncio
import json
import os
import ssl
import sys
import time
import urllib.request
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cli.dev.kube_client import ApiRefused
from cli.dev.local_control_plane import Cluster
from cli.processes.child_process import Process
from cli.processes.free_ports import free_port
from services.gateway.rbac_permission_check import check
from services.gateway.settings import GatewaySettings
from tests.cluster.fixtures import StartCluster
from tests.support.gateway_process import System, running
from tests.support.pods import written_pod
from tests.support.waiting import in_thread, until, wait_until

K8S = Path(__file__).parents[2] / "k8s"
ACCOUNT = ("koordinator-system", "koordstream-gateway")
SECRET = "/api/v1/namespaces/koordinator-system/secrets/koordstream-webhook-certs"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/koordstream-webhooks"
GATES = ",".join(
    f"{name}=true"
    for name in (
        "ConfigMapValidatingWebhook",
        "NodeMutatingWebhook",
        "NodeValidatingWebhook",
        "ReservationMutatingWebhook",
        "EnableQuotaAdmission",
    )
)
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"

pytestmark = pytest.mark.kube


class Site:
    """A cluster with everything installed, and the address of its webhooks."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.port = free_port()
        cluster.apply(K8S / "webhooks")
        for name in ("web", "bare"):
            cluster.create_namespace(name)
        cluster.api.call("PATCH", "/api/v1/namespaces/web", {"metadata": {"labels": {"colocation": "on"}}})

    def env(self, more: Mapping[str, str] | None = None, port: int = 0) -> dict[str, str]:
        """Returns the settings of a gateway with webhooks."""
        return {
            "KOORD_GATEWAY_WEBHOOK_LISTEN": f"127.0.0.1:{port or self.port}",
            "KOORD_GATEWAY_WEBHOOK_URL": f"https://127.0.0.1:{self.port}",
            "KOORD_GATEWAY_WEBHOOK_GATES": GATES,
            "KOORD_GATEWAY_WEBHOOK_POLL_INTERVAL_S": "0.5",
            **(more or {}),
        }

    @asynccontextmanager
    async def gateway(self, database: str, more: Mapping[str, str] | None = None) -> AsyncIterator[System]:
        """Starts a gateway with webhooks."""
        kubeconfig = await asyncio.to_thread(self.cluster.service_account_kubeconfig, *ACCOUNT)
        async with running(kubeconfig, database, self.folder, self.env(more)) as system:
            await self.configured()
            yield system

    async def configured(self) -> None:
        """Waits until both configuration objects exist."""
        for kind in ("mutating", "validating"):
            await until(in_thread(self.get, CONFIGURATION.format(kind)), f"{kind} configuration")
        await asyncio.sleep(1.5)  # the API server reads them by a watch

    def get(self, path: str) -> dict[str, Any] | None:
        try:
            return self.cluster.api.call("GET", path)
        except ApiRefused as refused:
            if refused.status != 404:
                raise
            return None

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self.cluster.api.call("POST", path, body)

    def pod(self, name: str, namespace: str = "web", **spec: Any) -> dict[str, Any]:
        """Creates a pod with plain requests."""
        labels = spec.pop("labels", {"app": "batch"})
        requests, limits = {"cpu": "1500m", "memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"}
        body = written_pod(name, labels=labels, requests=requests, limits=limits, **spec)
        return self.create(f"/api/v1/namespaces/{namespace}/pods", body)

    def refusal(self, path: str, body: Mapping[str, Any]) -> str:
        """Creates an object that must be rejected; returns the message."""
        with pytest.raises(ApiRefused) as refused:
            self.create(path, body)
        return str(refused.value)


PROFILE = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"colocation": "on"}},
        "selector": {"matchLabels": {"app": "batch"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "koordinatorPriority": 100,
        "schedulerName": "koord-scheduler",
        "labels": {"tier": "batch"},
    },
}
PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/koordinator-system/configmaps"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/web/elasticquotas"


def quota(name: str, parent: str = "", *, is_parent: bool = False, cpu: str = "10", least: str = "5") -> dict[str, Any]:
    labels = {"quota.scheduling.koordinator.sh/is-parent": str(is_parent).lower()}
    if parent:
        labels["quota.scheduling.koordinator.sh/parent"] = parent
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": labels},
        "spec": {"max": {"cpu": cpu}, "min": {"cpu": least}},
    }


def slo_config(**data: Any) -> dict[str, Any]:
    labels = {"koordinator.sh/configmap-type": "slo-controller-config"}
    return {
        "metadata": {"name": "slo-controller-config", "labels": labels},
        "data": {name.replace("_", "-"): json.dumps(document) for name, document in data.items()},
    }


@pytest.fixture
async def site(own_cluster: StartCluster, tmp_path: Path) -> Site:
    cluster = await asyncio.to_thread(own_cluster, installed=True)
    return await asyncio.to_thread(Site, cluster, tmp_path)


async def test_k8s_webhooks_grants_what_the_webhooks_need(site: Site) -> None:
    kubeconfig = await asyncio.to_thread(site.cluster.service_account_kubeconfig, *ACCOUNT)
    settings = GatewaySettings(kubeconfig=str(kubeconfig), webhook_listen="127.0.0.1:9876")
    found = await check(settings, time.time_ns())
    assert (found.problem, found.missing) == ("", ())
    needed = {(rule.verb, rule.resource, rule.name) for rule in found.allowed}
    assert ("update", "secrets", "koordstream-webhook-certs") in needed
    assert ("update", "mutatingwebhookconfigurations", "koordstream-webhooks") in needed


async def test_profiles_are_applied_to_pods_and_invalid_objects_are_rejected(site: Site, database: str) -> None:
    site.create(PROFILES, PROFILE)
    async with site.gateway(database) as system:
        await asyncio.to_thread(_a_batch_pod_is_translated, site)
        await asyncio.to_thread(_the_published_profile_is_applied, site)
        await asyncio.to_thread(_invalid_objects_are_rejected, site)
        await asyncio.to_thread(_profiles_apply_to_a_reservation, site)
        await asyncio.to_thread(_what_a_kubelet_reports_is_amplified, site)
        await asyncio.to_thread(_labels_that_put_a_node_under_two_strategies_are_rejected, site)
        await asyncio.to_thread(_quotas_are_created_one_after_the_other, site)
        await _pods_are_measured(site)
        await _configuration_is_mended(site)
        await _a_standby_answers(site, database, system)
        await _an_address_that_is_taken_ends_the_process(site, database)


def _a_batch_pod_is_translated(site: Site) -> None:
    made = site.pod("translated")
    resources = made["spec"]["containers"][0]["resources"]
    assert resources == {
        "requests": {BATCH_CPU: "1500", BATCH_MEMORY: "1Gi"},
        "limits": {BATCH_CPU: "2k", BATCH_MEMORY: "2Gi"},
    }
    assert (made["spec"]["priority"], made["spec"]["schedulerName"]) == (5000, "koord-scheduler")
    labels = {"app": "batch", "tier": "batch", "koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "100"}
    assert made["metadata"]["labels"] == labels
    annotations = made["metadata"]["annotations"]
    assert annotations["config.koordinator.sh/colocation-profiles"] == "batch"
    assert json.loads(annotations["node.koordinator.sh/extended-resource-spec"])["containers"]["main"]["requests"] == {
        BATCH_CPU: "1500",
        BATCH_MEMORY: "1Gi",
    }
    assert made["status"]["qosClass"] == "BestEffort"
    assert "priorityClassName" not in site.pod("elsewhere", "bare")["spec"]
    assert site.pod("other", labels={"app": "web"})["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1500m"


def _the_published_profile_is_applied(site: Site) -> None:
    switch = {"koordinator.sh/enable-colocation": "true"}
    site.cluster.api.call("PATCH", "/api/v1/namespaces/bare", {"metadata": {"labels": switch}})
    site.cluster.apply(K8S / "examples" / "webhooks" / "colocation-profile.yaml")
    numbers = count()
    made = wait_until(  # a profile is applied once it is observed
        lambda: site.pod(f"published-{next(numbers)}", "bare", labels=switch),
        "a pod that the profile changes",
        holds=lambda pod: "koordinator.sh/qosClass" in pod["metadata"]["labels"],
    )
    assert made["metadata"]["labels"] == switch | {
        "koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "1000", "koordinator.sh/mutated": "true",
    }  # fmt: skip
    assert made["metadata"]["annotations"]["koordinator.sh/intercepted"] == "true"
    assert made["spec"]["containers"][0]["resources"]["requests"] == {BATCH_CPU: "1500", BATCH_MEMORY: "1Gi"}


def _invalid_objects_are_rejected(site: Site) -> None:
    pods = "/api/v1/namespaces/web/pods"
    bad = {"metadata": {"name": "bad", "labels": {"koordinator.sh/qosClass": "LSR"}},
           "spec": {"containers": [{"name": "main", "image": "none"}]}}  # fmt: skip
    message = site.refusal(pods, bad)
    assert (
        'admission webhook "vpod.koordinator.sh" denied the request: pod web/bad: QoS LSR cannot be combined' in message
    )
    assert "QoS LSR needs a cpu request" in message

    message = site.refusal(QUOTAS, quota("upside-down", cpu="1", least="5"))
    assert "quota upside-down: min of cpu is above its max; raise max or lower min" in message

    configs = "/api/v1/namespaces/koordinator-system/configmaps"
    message = site.refusal(configs, slo_config(colocation_config={"cpuReclaimThresholdPercent": -1}))
    assert "colocation-config: cpuReclaimThresholdPercent" in message
    assert '___{"reason":"ConfigParamInvalid"' in message.replace("\\", "")
    assert site.create(configs, slo_config(colocation_config={"cpuReclaimThresholdPercent": 60}))
    labels = {"koordinator.sh/qosClass": "LS"}
    with pytest.raises(ApiRefused, match=r"labels\.koordinator\.sh/qosClass is BE and cannot be changed"):
        site.cluster.api.call("PATCH", f"{pods}/translated", {"metadata": {"labels": labels}})


def _quotas_are_created_one_after_the_other(site: Site) -> None:
    """Checks that objects created just before count."""
    site.create(QUOTAS, quota("org", is_parent=True))
    made = site.create(QUOTAS, quota("team", "org"))
    assert json.loads(made["metadata"]["annotations"]["quota.scheduling.koordinator.sh/shared-weight"]) == {"cpu": "10"}
    assert "with it the children of org have a min" in site.refusal(QUOTAS, quota("greedy", "org", least="1"))
    with pytest.raises(ApiRefused, match="quota org has the children team"):
        site.cluster.api.call("DELETE", f"{QUOTAS}/org")
    parent = {"quota.scheduling.koordinator.sh/name": "org"}
    body = {"metadata": {"name": "lost", "labels": parent}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    assert "quota org is a parent" in site.refusal("/api/v1/namespaces/web/pods", body)


def _profiles_apply_to_a_reservation(site: Site) -> None:
    resources = {"requests": {"cpu": "2", "memory": "1Gi"}}
    body = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "kept", "labels": {"app": "batch"}},
        "spec": {
            "ttl": "1h",
            "owners": [{"labelSelector": {"matchLabels": {"app": "batch"}}}],
            "template": {"spec": {"containers": [{"name": "main", "image": "none", "resources": resources}]}},
        },
    }
    made = site.create(RESERVATIONS, body)
    labels = {"app": "batch", "tier": "batch", "koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "100"}
    assert made["metadata"]["labels"] == labels
    spec = made["spec"]["template"]["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["schedulerName"]) == (
        "koord-batch",
        5000,
        "koord-scheduler",
    )
    assert spec["containers"][0]["resources"] == resources, "a reservation keeps the requested resources"
    other = site.create(RESERVATIONS, {**body, "metadata": {"name": "other", "labels": {"app": "web"}}})
    assert other["metadata"]["labels"] == {"app": "web"}
    assert "priority" not in other["spec"]["template"]["spec"]


def _what_a_kubelet_reports_is_amplified(site: Site) -> None:
    ratio, raw = "node.koordinator.sh/resource-amplification-ratio", "node.koordinator.sh/raw-allocatable"
    path = f"{NODES}/amplified"
    site.create(NODES, {"metadata": {"name": "amplified", "annotations": {ratio: '{"cpu":1.25}'}}})

    def report(cpu: str) -> dict[str, Any]:
        amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        return site.cluster.api.call(
            "PATCH", f"{path}/status", {"status": {"capacity": amounts, "allocatable": amounts}}
        )

    def annotate(text: str | None) -> None:
        site.cluster.api.call("PATCH", path, {"metadata": {"annotations": {ratio: text}}})

    message = report("32")
    assert message["status"]["allocatable"] == {"cpu": "40", "memory": "64Gi", "pods": "110"}
    assert message["status"]["capacity"]["cpu"] == "32"
    assert json.loads(message["metadata"]["annotations"][raw]) == {"cpu": "32", "memory": "64Gi"}
    assert report("16")["status"]["allocatable"]["cpu"] == "20", "the kubelet updates the status"
    annotate("much")
    with pytest.raises(ApiRefused, match=r"node amplified: annotation .* is 'much'"):
        report("8")
    annotate(None)
    message = report("32")
    assert message["status"]["allocatable"]["cpu"] == "32"
    assert raw not in message["metadata"].get("annotations", {})


def _labels_that_put_a_node_under_two_strategies_are_rejected(site: Site) -> None:
    strategies = [
        {"name": "pools", "nodeSelector": {"matchLabels": {"pool": "a"}}, "enable": False},
        {"name": "zones", "nodeSelector": {"matchLabels": {"zone": "z"}}, "enable": False},
    ]
    config = slo_config(colocation_config={"enable": True, "nodeConfigs": strategies})
    if site.get(f"{CONFIG_MAPS}/slo-controller-config"):
        site.cluster.api.call("DELETE", f"{CONFIG_MAPS}/slo-controller-config")
    site.create(CONFIG_MAPS, config)
    site.create(NODES, {"metadata": {"name": "labelled", "labels": {"pool": "a"}}})

    def move(name: str) -> str:
        """Adds the node to the zone, and removes it again if that was admitted."""
        path = f"{NODES}/{name}"
        try:
            site.cluster.api.call("PATCH", path, {"metadata": {"labels": {"zone": "z"}}})
        except ApiRefused as refused:
            return str(refused)
        site.cluster.api.call("PATCH", path, {"metadata": {"labels": {"zone": None}}})
        return ""

    message = wait_until(lambda: move("labelled"), "refusal, once the webhook has seen the ConfigMap")
    assert 'admission webhook "vnode.koordinator.sh" denied the request' in message
    assert "labelled" in message
    assert "pools" in message
    assert "zones" in message
    assert move("amplified") == "", "a node that one strategy selects"
    site.cluster.api.call("DELETE", f"{CONFIG_MAPS}/slo-controller-config")


async def _pods_are_measured(site: Site) -> None:
    """Checks that of ten concurrent pods the quota admits as many as fit, while another client writes it, and records
    their requests."""
    site.create(QUOTAS, quota("small", cpu="2", least="0"))
    labels = {"quota.scheduling.koordinator.sh/name": "small"}
    pods = "/api/v1/namespaces/web/pods"

    def create(number: int, query: str = "") -> str:
        resources = {"requests": {"cpu": "300m"}}
        body = {
            "metadata": {"name": f"measured-{number}", "labels": labels},
            "spec": {"containers": [{"name": "main", "image": "none", "resources": resources}]},
        }
        try:
            site.create(pods + query, body)
        except ApiRefused as refused:
            return str(refused)
        return ""

    def known() -> bool:  # the webhook has observed the quota
        found = site.get(f"{QUOTAS}/small") or {}
        create(99, "?dryRun=All")
        return "quota.scheduling.koordinator.sh/shared-weight" in found["metadata"]["annotations"]

    await until(in_thread(known), "quota")
    await asyncio.sleep(1)

    def disturb() -> None:
        for number in range(40):
            site.cluster.api.call("PATCH", f"{QUOTAS}/small", {"metadata": {"annotations": {"noise": str(number)}}})

    noise = asyncio.create_task(asyncio.to_thread(disturb))
    message = await asyncio.gather(*(asyncio.to_thread(create, number) for number in range(10)))
    await noise
    refused = [text for text in message if text]
    assert len(refused) == 4, message
    assert "of which cpu 1800m is requested already and cpu 2 may be" in refused[0]
    found = site.get(f"{QUOTAS}/small") or {}
    child_request = found["metadata"]["annotations"]["quota.scheduling.koordinator.sh/child-request"]
    assert json.loads(child_request) == {"cpu": "1800m"}


async def _configuration_is_mended(site: Site) -> None:
    path = CONFIGURATION.format("mutating")
    before = site.get(path)
    assert before is not None
    webhooks = [{**each, "failurePolicy": "Fail"} for each in before["webhooks"]]
    await asyncio.to_thread(site.cluster.api.call, "PATCH", path, {"webhooks": webhooks})
    await until(in_thread(lambda: (site.get(path) or {})["webhooks"] == before["webhooks"]), "mended configuration")
    await asyncio.to_thread(site.cluster.api.call, "DELETE", path)
    await until(in_thread(lambda: (site.get(path) or {}).get("webhooks") == before["webhooks"]), "configuration again")


async def _an_address_that_is_taken_ends_the_process(site: Site, database: str) -> None:
    taken = await _replica(site, database, site.port, "taken")
    try:
        await until(lambda: taken.exit_code is not None, "end of the process")
        assert taken.exit_code == 1
        assert "KOORD_GATEWAY_WEBHOOK_LISTEN is '127.0.0.1:" in (site.folder / "taken.log").read_text()
    finally:
        await asyncio.to_thread(taken.stop)


async def _replica(site: Site, database: str, port: int, name: str) -> Process:
    """Starts another gateway, without a bus."""
    kubeconfig = await asyncio.to_thread(site.cluster.service_account_kubeconfig, *ACCOUNT)
    settings = {
        "KOORD_POSTGRES": database,
        "KOORD_NATS": "nats://127.0.0.1:1",
        "KOORD_GATEWAY_KUBECONFIG": str(kubeconfig),
        **site.env(port=port),
    }
    command = [sys.executable, "-m", "cli", "run", "gateway"]
    process = Process(name, command, site.folder / f"{name}.log", env=os.environ | settings)
    process.start()
    return process


async def _a_standby_answers(site: Site, database: str, leading: System) -> None:
    """Starts a replica that is not the leader, without a bus."""
    port = free_port()
    standby = await _replica(site, database, port, "standby")
    try:
        secret = site.get(SECRET)
        assert secret is not None
        tls = ssl.create_default_context(cadata=b64decode(secret["data"]["ca.crt"]).decode())
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "operation": "CREATE",
                "namespace": "web",
                "object": {"metadata": {"labels": {"app": "batch"}}, "spec": {"containers": []}},
            },
        }

        def send() -> dict[str, Any] | None:
            request = urllib.request.Request(f"https://127.0.0.1:{port}/mutate-pod", json.dumps(review).encode())
            try:
                with urllib.request.urlopen(request, context=tls, timeout=5) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except OSError:
                return None

        answer = await until(in_thread(send), "response of the standby")
        steps = json.loads(b64decode(answer["response"]["patch"]))
        assert {"op": "add", "path": "/spec/priority", "value": 5000} in steps
        assert leading.gateway.running
    finally:
        await asyncio.to_thread(standby.stop)


async def test_certificates_change_while_pods_are_created(site: Site, database: str) -> None:
    site.create(PROFILES, PROFILE)
    lifetimes = {"KOORD_GATEWAY_WEBHOOK_CERTIFICATE_S": "10", "KOORD_GATEWAY_WEBHOOK_AUTHORITY_S": "30"}
    async with site.gateway(database, {**lifetimes, "KOORD_GATEWAY_WEBHOOK_FAILURE_POLICY": "Fail"}) as system:
        process = system.gateway.pid
        certificates: set[str] = set()
        authorities: set[str] = set()
        made = 0
        while len(certificates) < 4 or len(authorities) < 2 or made < 100:
            secret = site.get(SECRET)
            assert secret is not None
            certificates.add(secret["data"]["tls.crt"])
            authorities.add(secret["data"]["ca.crt"])
            found = await asyncio.to_thread(
                site.pod, f"p-{made}"
            )  # with failurePolicy Fail: rejected if TLS were not trusted
            assert found["spec"]["priority"] == 5000
            made += 1
            await asyncio.sleep(0.1)
        assert system.gateway.pid == process


async def test_a_pod_created_while_no_webhook_answered_is_admitted_late(site: Site, database: str) -> None:
    site.create(PROFILES, PROFILE)
    async with site.gateway(database) as system:
        await asyncio.to_thread(system.gateway.kill)
        missed = await asyncio.to_thread(site.pod, "missed")
        assert missed["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1500m", "memory": "1Gi"}
        bad = {"koordinator.sh/qosClass": "LSR"}
        await asyncio.to_thread(site.pod, "bad", "bare", labels=bad)
        await asyncio.to_thread(system.gateway.start)

        def admitted_late() -> dict[str, Any] | None:
            pod = site.get("/api/v1/namespaces/web/pods/missed") or {}
            return pod if pod["metadata"]["labels"].get("koordinator.sh/qosClass") else None

        labels = (await until(in_thread(admitted_late), "labels of the profile"))["metadata"]["labels"]
        assert labels == {
            "app": "batch",
            "tier": "batch",
            "koordinator.sh/qosClass": "BE",
            "koordinator.sh/priority": "100",
        }
        rows = await system.until(lambda rows: sum("AdmissionMissed" in row.type for row in rows) == 2)
        missed = {row.key: json.loads(row.data) for row in rows if "AdmissionMissed" in row.type}
        assert missed["web/missed"]["profiles"] == ["batch"]
        assert "would have changed spec.containers, spec.priority" in missed["web/missed"]["problems"][0]
        assert "QoS LSR cannot be combined" in missed["bare/bad"]["problems"][0]

        def events() -> list[str]:
            found = site.cluster.api.call("GET", "/api/v1/namespaces/web/events")["items"]
            return [item["message"] for item in found if item["reason"] == "AdmissionMissed"]

        assert "delete it so that it is created again" in (await until(in_thread(events), "Kubernetes Event"))[0]
        await site.configured()
        again = await asyncio.to_thread(site.pod, "again")
        assert again["spec"]["priority"] == 5000
