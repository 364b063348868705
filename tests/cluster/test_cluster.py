"""The test cluster is a real one: it authenticates, authorizes, keeps its data, and leaves nothing behind."""

import os
import socket
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from kubernetes_asyncio import client, config, watch

from cli.dev.binary_sources import CLUSTER
from cli.dev.fake_nodes import create_nodes, node_object
from cli.dev.kube_client import ApiRefused
from cli.dev.local_control_plane import Cluster, KubectlFailed
from shared.errors import KoordError
from tests.cluster.fixtures import MakeNodes, StartCluster
from tests.support.pods import written_pod
from tests.support.waiting import wait_until


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def listens(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(url.rsplit(":", 1)[1]))) == 0


def test_the_api_is_ready_and_reports_the_pinned_version(kube_cluster: Cluster) -> None:
    assert kube_cluster.api.ready()
    pinned = CLUSTER.versions()
    assert pinned
    assert (
        "KUBEBUILDER_ASSETS" in os.environ or kube_cluster.api.call("GET", "/version")["gitVersion"] == pinned["kube"]
    )


def test_the_crds_of_this_repository_are_served(kube_cluster: Cluster) -> None:
    groups = {group["name"] for group in kube_cluster.api.call("GET", "/apis")["groups"]}
    assert {"slo.koordinator.sh", "scheduling.koordinator.sh", "quota.koordinator.sh"} <= groups


async def test_a_pod_is_created_and_bound_to_a_node(
    kube_client: client.ApiClient, namespace: str, kube_nodes: MakeNodes
) -> None:
    (node,) = kube_nodes("bind-target", capacity={"example.com/gpu": "8"}, allocatable={"cpu": "31500m"})
    core = client.CoreV1Api(kube_client)
    seen = await core.read_node(node)
    assert not seen.spec.taints
    assert (seen.status.capacity["cpu"], seen.status.allocatable["cpu"]) == ("32", "31500m")
    assert seen.status.allocatable["example.com/gpu"] == "8"

    await core.create_namespaced_pod(namespace, cast("Any", written_pod("web")))
    to_node = client.V1ObjectReference(kind="Node", name=node)
    binding = client.V1Binding(metadata=client.V1ObjectMeta(name="web"), target=to_node)
    await core.create_namespaced_pod_binding("web", namespace, binding, _preload_content=False)
    pod = await core.read_namespaced_pod("web", namespace)
    assert pod.spec.node_name == node
    assert pod.spec.volumes[0].projected.sources  # the service-account admission is on, as in any cluster


async def test_a_watch_delivers_what_happens_after_it_began(kube_client: client.ApiClient, namespace: str) -> None:
    core = client.CoreV1Api(kube_client)
    now = (await core.list_namespaced_pod(namespace)).metadata.resource_version
    await core.create_namespaced_pod(namespace, cast("Any", written_pod("seen")))
    async with watch.Watch().stream(core.list_namespaced_pod, namespace, resource_version=now) as stream:
        async for event in stream:
            assert (event["type"], event["object"].metadata.name) == ("ADDED", "seen")
            break


async def test_a_service_account_may_do_what_rbac_grants_and_nothing_else(
    kube_cluster: Cluster, namespace: str
) -> None:
    kubeconfig = kube_cluster.service_account_kubeconfig(namespace, "reader")
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    kube_cluster.api.call("POST", f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    }
    kube_cluster.api.call("POST", f"{rbac}/rolebindings", binding)
    async with await config.new_client_from_config(str(kubeconfig)) as api:
        core = client.CoreV1Api(api)
        me = await client.AuthenticationV1Api(api).create_self_subject_review(client.V1SelfSubjectReview())
        assert me.status.user_info.username == f"system:serviceaccount:{namespace}:reader"
        assert (await core.list_namespaced_pod(namespace)).items == []
        with pytest.raises(client.ApiException) as refused:
            await core.create_namespaced_pod(namespace, cast("Any", written_pod("web")))
        assert refused.value.status == 403


def test_a_user_with_a_certificate_has_no_more_than_rbac_grants(kube_cluster: Cluster) -> None:
    with pytest.raises(KubectlFailed, match='User "stranger" cannot list resource "nodes"'):
        kube_cluster.kubectl("get", "nodes", kubeconfig=kube_cluster.kubeconfig("stranger"))


def test_files_are_applied_as_a_user_applies_them(kube_cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m, namespace: {namespace}}}\ndata: {{a: b}}\n")
    assert kube_cluster.apply(file) == "configmap/m created\n"
    assert kube_cluster.apply(file) == "configmap/m unchanged\n"


def test_a_namespace_goes_with_all_that_is_in_it(kube_cluster: Cluster) -> None:
    kube_cluster.create_namespace("doomed")
    pod = written_pod("held", nodeName="nowhere")  # bound, so a kubelet would have to confirm its end
    pod["metadata"]["finalizers"] = ["example.com/hold"]
    kube_cluster.api.call("POST", "/api/v1/namespaces/doomed/pods", pod)
    kube_cluster.delete_namespace("doomed")
    for gone in ("/api/v1/namespaces/doomed", "/api/v1/namespaces/doomed/pods/held"):
        with pytest.raises(ApiRefused) as refused:
            kube_cluster.api.call("GET", gone)
        assert refused.value.reason == "NotFound"


def test_restarts_keep_the_data_and_the_address(own_cluster: StartCluster) -> None:
    cluster = own_cluster()
    url = cluster.url
    cluster.api.call("POST", "/api/v1/namespaces/default/pods", written_pod("kept"))
    cluster.restart_apiserver()
    cluster.restart_etcd(kill=True)
    cluster.restart_apiserver(kill=True)
    assert cluster.url == url
    assert cluster.api.call("GET", "/api/v1/namespaces/default/pods/kept")["metadata"]["name"] == "kept"


def test_a_paused_etcd_makes_the_api_unready_until_it_is_resumed(own_cluster: StartCluster) -> None:
    cluster = own_cluster()
    cluster.etcd.pause()
    # Its own check of etcd is up to some seconds old.
    wait_until(lambda: not cluster.api.ready(), "an API that is not ready")
    cluster.etcd.resume()
    cluster.wait_ready()


def test_nothing_is_left_after_stop(own_cluster: StartCluster) -> None:
    cluster = own_cluster()
    pids = [cluster.etcd.pid, cluster.apiserver.pid]
    assert all(pid and exists(pid) for pid in pids)
    assert listens(cluster.url)
    url = cluster.url
    cluster.stop()
    assert not any(pid and exists(pid) for pid in pids)
    assert not listens(url)
    assert not cluster.folder.exists()


def test_a_named_folder_continues_with_its_data_and_has_one_owner(own_cluster: StartCluster, tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        url, token = cluster.url, cluster.service_account_token("default", "keeper")
        with pytest.raises(KoordError, match="belongs to a running cluster"):
            Cluster(tmp_path).start()
        assert cluster.api.ready()
    with Cluster(tmp_path) as cluster:
        assert cluster.url == url
        review = {"spec": {"token": token}}
        answer = cluster.api.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
        assert answer["status"]["authenticated"] is True


def test_a_cluster_outlives_the_thread_that_started_it(own_cluster: StartCluster) -> None:
    started: list[Cluster] = []
    thread = threading.Thread(target=lambda: started.append(own_cluster()))
    thread.start()
    thread.join()
    assert started[0].api.ready()


def test_the_stock_scheduler_and_the_controllers_run_a_deployment(own_cluster: StartCluster) -> None:
    cluster = own_cluster()
    cluster.start_controllers()
    cluster.start_scheduler()
    create_nodes(cluster.api, [node_object("node-0")])
    cluster.kubectl("create", "deployment", "web", "--image=none", "--replicas=2")
    cluster.kubectl("wait", "pod", "-l", "app=web", "--for=create", "--timeout=60s")
    cluster.kubectl("wait", "pod", "-l", "app=web", "--for=condition=PodScheduled", "--timeout=60s")
    cluster.apiserver.stop(timeout_s=8)
    assert cluster.apiserver.exit_code == 0  # it ends by itself, although both hold dozens of watches
