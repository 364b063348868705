"""k8s/overlays/complete on a real API server: referenced objects exist, and services can read their variables."""

import json
import ssl
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.dev.kube_client import Api, Object
from cli.dev.local_control_plane import Cluster
from cli.main import koord as command
from cli.service_list import AGENTS, SERVICES, SHARDED, load
from services.node_agent.device_daemon.daemon_options import DEFAULT_OUTPUT, DeviceDaemonSettings
from services.node_agent.settings import load as load_agent
from services.runtime_proxy.settings import ProxyOptions, RuntimeProxySettings
from shared.runtime.service import Environment
from tests.cluster.fixtures import require_programs
from tests.integration.k8s.crd_inventory import K8S
from tests.integration.k8s.service_accounts import NAMESPACE, as_account, granted
from tests.support.prepared_folders import copy_cluster

APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
DEPLOYED = [f"{name}-0" if name in SHARDED else name for name in SERVICES if name != "simulator"]
BESIDE = {"KOORD_HTTP_ADDR", "PGSSLROOTCERT"}


@pytest.fixture(scope="module")
def site(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own: the other tests of this folder assume that the rights of the webhooks are absent."""
    require_programs(pytestconfig)
    folder = tmp_path_factory.mktemp("credentials")
    with Cluster(copy_cluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        koord("credentials", "init", folder, "--without", "simulator")
        koord("audit", "keygen", "--out", folder / "logins" / "audit" / "checkpoint.key")
        cluster.kubectl("apply", "-f", "-", stdin=koord("credentials", "secrets", folder))
        cluster.apply(K8S / "overlays" / "complete")
        yield cluster


def koord(*arguments: str | Path) -> str:
    """Runs the command of docs/kubernetes.md; returns its output."""
    done = CliRunner().invoke(command, [str(each) for each in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def listed(cluster: Cluster, path: str) -> dict[str, Object]:
    return {item["metadata"]["name"]: item for item in cluster.api.call("GET", path)["items"]}


def workloads(cluster: Cluster) -> dict[str, Object]:
    """Returns name -> pod template of every workload."""
    found: dict[str, Object] = {}
    for kind in ("deployments", "statefulsets", "daemonsets"):
        found |= listed(cluster, f"{APPS}/{kind}")
    found |= listed(cluster, f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")
    return {name: item["spec"]["template"] for name, item in found.items()}


def variables(cluster: Cluster, template: Object) -> dict[str, str]:
    """Returns the environment of a workload's container."""
    maps, secrets = listed(cluster, f"{CORE}/configmaps"), listed(cluster, f"{CORE}/secrets")
    container = template["spec"]["containers"][0]
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        if "configMapRef" in source:
            found |= maps[source["configMapRef"]["name"]]["data"]
        else:
            data = secrets[source["secretRef"]["name"]]["data"]
            found |= {key: b64decode(text).decode() for key, text in data.items()}
    return found | {each["name"]: each.get("value", "from the pod") for each in container.get("env", ())}


def test_applied_again_it_changes_nothing(site: Cluster) -> None:
    site.apply(K8S / "overlays" / "complete")
    kinds = ("deployments", "statefulsets", "daemonsets")
    found = [item for kind in kinds for item in listed(site, f"{APPS}/{kind}").values()]
    assert len(found) == len(DEPLOYED) + 4
    assert {item["metadata"]["generation"] for item in found} == {1}, "pods would be created again"


def test_there_is_a_deployment_for_each_service_and_the_agent_is_on_each_node(site: Cluster) -> None:
    assert set(listed(site, f"{APPS}/deployments")) == {f"koordstream-{name}" for name in DEPLOYED}
    agents = listed(site, f"{APPS}/daemonsets")
    assert set(agents) == {"koordstream-node-agent", "koordstream-device-daemon"}
    pod = agents["koordstream-node-agent"]["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert f"run {AGENTS[0]}" in pod["containers"][0]["command"][-1]
    assert "nodeSelector" not in pod


def test_the_device_daemon_is_on_labelled_nodes_with_nothing_but_the_host_and_the_folder_that_the_agent_reads(
    site: Cluster,
) -> None:
    pods = {name: template["spec"] for name, template in workloads(site).items()}
    daemon, agent = pods["koordstream-device-daemon"], pods["koordstream-node-agent"]
    assert daemon["nodeSelector"] == {"node.koordstream/device-daemon": "true"}
    (container,) = daemon["containers"]
    assert container["args"] == ["run", "device-daemon"]
    found = variables(site, workloads(site)["koordstream-device-daemon"])
    settings = DeviceDaemonSettings.load("device-daemon", found)
    assert found.keys() <= {f"KOORD_DEVICE_DAEMON_{field}".upper() for field in settings.__struct_fields__}
    folder = Path(DEFAULT_OUTPUT).parent
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounts == {settings.host_root: True, str(folder): False, "/tmp": False}
    (read,) = (mount for mount in agent["containers"][0]["volumeMounts"] if mount["mountPath"] == str(folder))
    assert read["readOnly"]
    paths = [
        volume["hostPath"]["path"]
        for pod in (daemon, agent)
        for volume in pod["volumes"]
        if volume["name"] == read["name"]
    ]
    assert paths == [str(folder)] * 2
    assert daemon["automountServiceAccountToken"] is False
    assert "ports" not in container


@pytest.mark.parametrize("name", DEPLOYED)
def test_a_service_is_run_with_variables_that_it_reads_and_can_read(site: Cluster, name: str) -> None:
    template = workloads(site)[f"koordstream-{name}"]
    container = template["spec"]["containers"][0]
    service = name.removesuffix("-0")
    assert container["args"] == ["run", service]
    found = variables(site, template)
    declared = load(service)
    environment, settings = Environment.load("", found), declared.settings.load(declared.name, found)
    assert (environment.http_addr, environment.shard) == ("0.0.0.0:8080", 0)
    own = {f"KOORD_{service}_{field}".replace("-", "_").upper() for field in settings.__struct_fields__}
    common = {f"KOORD_{field}".upper() for field in environment.__struct_fields__}
    assert found.keys() <= own | common | BESIDE, "a variable that no service reads"
    files = listed(site, f"{CORE}/secrets")[f"koordstream-{name}-files"]["data"]
    for variable in ("KOORD_NATS_NKEY", "KOORD_NATS_CA", "PGSSLROOTCERT", "KOORD_AUDIT_KEY"):
        if variable in found:
            assert found[variable].removeprefix("/etc/koord/") in files, variable


def test_the_agent_is_run_with_variables_that_it_reads(site: Cluster) -> None:
    found = variables(site, workloads(site)["koordstream-node-agent"])
    common, own = load_agent(found)
    assert (common.http_addr, own.node) == ("0.0.0.0:9316", "from the pod")
    names = {f"KOORD_{field}".upper() for field in common.__struct_fields__}
    names |= {f"KOORD_NODE_AGENT_{field}".upper() for field in own.__struct_fields__}
    assert found.keys() <= names, "a variable that no service reads"


def test_the_agent_has_what_nri_and_a_runtime_proxy_need_by_the_paths_of_the_node(site: Cluster) -> None:
    template = workloads(site)["koordstream-node-agent"]
    _, own = load_agent(variables(site, template))
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in template["spec"]["containers"][0]["volumeMounts"]}
    folders = [Path(own.nri_socket).parent, Path(own.hook_server_socket).parent, Path(own.hook_registrations)]
    folders += [Path(own.pod_resources_proxy), Path(own.hami_core_library).parent]
    for folder in folders:
        mount = mounts[str(folder)]
        assert volumes[mount["name"]]["hostPath"] == {"path": str(folder), "type": "DirectoryOrCreate"}
        assert not mount.get("readOnly"), folder
    assert own.hook_server_endpoint == "", "the socket has one path on the node and in the pod"
    skipped = ProxyOptions()
    assert template["metadata"]["labels"][skipped.skipped_key] == skipped.skipped_value, "it could not start itself"
    assert (RuntimeProxySettings().registrations, own.hook_registrations) == ("/etc/runtime/hookserver.d",) * 2


def test_every_object_that_a_workload_references_exists(site: Cluster) -> None:
    maps, secrets = listed(site, f"{CORE}/configmaps"), listed(site, f"{CORE}/secrets")
    accounts = listed(site, f"{CORE}/serviceaccounts")
    used = set()
    for name, template in workloads(site).items():
        pod = template["spec"]
        assert pod.get("serviceAccountName", "default") in {*accounts, "default"}, name
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        claims = {"data"} if name in ("nats", "postgres") else set()
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= {*volumes, *claims}, name
            for source in container.get("envFrom", ()):
                kind, known = ("configMapRef", maps) if "configMapRef" in source else ("secretRef", secrets)
                assert source[kind]["name"] in known, name
                used.add(source[kind]["name"])
        for volume in volumes.values():
            if "secret" in volume:
                secret = volume["secret"]
                used.add(secret["secretName"])
                assert {item["key"] for item in secret.get("items", ())} <= secrets[secret["secretName"]]["data"].keys()
    assert used >= set(secrets), "a login that nothing uses lies in the cluster"


def test_each_service_object_selects_the_pods_of_one_workload_on_a_port_that_they_have(site: Cluster) -> None:
    templates = workloads(site)
    services = listed(site, f"{CORE}/services")
    assert set(services) == {"koordstream-webhook", "nats", "postgres"}
    for name, service in services.items():
        selector = service["spec"]["selector"]
        chosen = [
            template
            for template in templates.values()
            if selector.items() <= template["metadata"].get("labels", {}).items()
        ]
        assert len(chosen) == 1, name
        ports = [port for container in chosen[0]["spec"]["containers"] for port in container["ports"]]
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in {each["containerPort"] for each in ports}, name


def test_a_pod_of_each_workload_is_admitted(site: Cluster) -> None:
    """Creates pods as the controllers of a cluster would, with the accounts and priority classes that they name."""
    site.api.call("POST", f"{CORE}/serviceaccounts", account("default"))
    for name, template in workloads(site).items():
        pod: Object = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
        pod["spec"]["volumes"] = [*pod["spec"]["volumes"], *({"name": each, "emptyDir": {}} for each in claimed(name))]
        pod["metadata"] = {**template["metadata"], "name": f"{name}-0"}
        made = site.api.call("POST", f"{CORE}/pods?dryRun=All", pod)
        mounted = [
            each for volume in made["spec"]["volumes"] for each in volume.get("projected", {}).get("sources", ())
        ]
        assert any("serviceAccountToken" in each for each in mounted) == (name == "koordstream-gateway"), name


def claimed(name: str) -> tuple[str, ...]:
    return ("data",) if name in ("nats", "postgres") else ()


def account(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}


@pytest.mark.parametrize("name", ["koordstream-service", "koordstream-node-agent", "koordstream-device-daemon"])
def test_services_without_api_access_have_no_rules(site: Cluster, name: str) -> None:
    assert granted(as_account(site, name), NAMESPACE) == {}
    assert granted(as_account(site, name), "default") == {}


def test_the_gateway_runs_as_the_account_that_has_the_rights_of_its_webhooks(site: Cluster) -> None:
    template = workloads(site)["koordstream-gateway"]
    assert template["spec"]["serviceAccountName"] == "koordstream-gateway"
    found = granted(as_account(site, "koordstream-gateway"), NAMESPACE)
    assert found["", "secrets koordstream-webhook-certs"] == {"get", "update"}
    assert found["", "secrets"] == {"create"}
    settings: dict[str, Any] = listed(site, f"{CORE}/configmaps")["koordstream-gateway-settings"]["data"]
    port = int(settings["KOORD_GATEWAY_WEBHOOK_LISTEN"].rpartition(":")[2])
    (webhook,) = listed(site, f"{CORE}/services")["koordstream-webhook"]["spec"]["ports"]
    assert webhook["targetPort"] == port


def test_without_servers_of_its_own_the_rest_is_the_same(site: Cluster) -> None:
    output = site.kubectl("apply", "-k", K8S / "overlays" / "own-servers", "--dry-run=server", "-o", "json")
    names = {(item["kind"], item["metadata"]["name"]) for item in json.loads(output)["items"]}
    assert {("Deployment", f"koordstream-{name}") for name in DEPLOYED} <= names
    assert ("Job", "koordstream-migrate") in names
    assert not {kind for kind, _ in names} & {"StatefulSet"}


def test_a_token_of_another_account_is_rejected(site: Cluster) -> None:
    tls = ssl.create_default_context(cafile=str(site.ca_file))
    token = site.service_account_token(NAMESPACE, "koordstream-node-agent")
    api = Api(site.api.host, site.api.port, tls, token)
    with api.session() as session:
        assert session.send("GET", f"{CORE}/secrets", b"", {})[0] == 403
