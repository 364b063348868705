"""Binding a pod: every answer of a real API server, and every way of getting none, ends in a recorded outcome."""

import asyncio
from typing import Any

import pytest

from cli.dev.local_control_plane import Cluster
from services.gateway.kube_api.api_errors import Conflict, Forbidden
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import PODS
from shared.events.cluster import BindFailed, BindRejected, MissingPermission, PodBound
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.conftest import MakePod
from tests.integration.gateway.effect_harness import EffectHarness, placed
from tests.integration.gateway.fault_proxy import FaultProxy


@pytest.fixture
async def nodes(stage: EffectHarness, kube_nodes: MakeNodes) -> None:
    names = ("bind-1", "bind-2")
    kube_nodes(*names)
    await stage.observe("nodes", *names)


def node_of(cluster: Cluster, pod: dict[str, Any]) -> str:
    metadata = pod["metadata"]
    found = cluster.api.call("GET", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}")
    return str(found["spec"].get("nodeName", ""))


async def waiting(stage: EffectHarness, make_pod: MakePod, name: str = "web", **more: object) -> dict[str, Any]:
    """A pod that was observed and waits."""
    pod = make_pod(name, **more)
    await stage.observe("pods", f"{pod['metadata']['namespace']}/{name}")
    return pod


async def test_a_pod_is_bound(stage: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster) -> None:
    pod = await waiting(stage, make_pod)
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)
    assert node_of(cluster, pod) == "bind-1"
    assert stage.checks == 1


async def test_a_pod_that_is_gone_is_rejected(
    stage: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster
) -> None:
    pod = await waiting(stage, make_pod)
    cluster.api.call("DELETE", pod_path(pod) + "?gracePeriodSeconds=0")
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert "404" in outcome.reason


def pod_path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


async def test_another_pod_under_the_same_name_is_left_alone(
    stage: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster
) -> None:
    first = await waiting(stage, make_pod)
    cluster.api.call("DELETE", pod_path(first) + "?gracePeriodSeconds=0")
    second = make_pod("web")
    (outcome,) = await stage.ask(placed(first, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert "is gone" in outcome.reason
    assert node_of(cluster, second) == ""


async def test_a_binding_that_already_holds_is_a_success(
    stage: EffectHarness, nodes: None, make_pod: MakePod, api: KubeApi
) -> None:
    pod = await waiting(stage, make_pod)
    await api.create_binding(placed(pod, "").pod, uid=pod["metadata"]["uid"], node="bind-1")
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)


async def test_a_pod_that_another_scheduler_bound_is_rejected(
    stage: EffectHarness, nodes: None, make_pod: MakePod, api: KubeApi, cluster: Cluster
) -> None:
    pod = await waiting(stage, make_pod)
    await api.create_binding(placed(pod, "").pod, uid=pod["metadata"]["uid"], node="bind-2")
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert "bind-2 already" in outcome.reason
    assert node_of(cluster, pod) == "bind-2"


async def test_a_pod_that_is_gated_is_rejected_and_the_reason_is_the_servers(
    stage: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster
) -> None:
    pod = await waiting(stage, make_pod, schedulingGates=[{"name": "example.com/wait"}])
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert "schedulingGates" in outcome.reason
    assert node_of(cluster, pod) == ""


async def test_a_node_that_is_not_there_is_refused_although_the_api_server_would_take_it(
    stage: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster, proxy: FaultProxy
) -> None:
    pod = await waiting(stage, make_pod)
    (outcome,) = await stage.ask(placed(pod, "no-such-node"))
    assert isinstance(outcome, BindRejected)
    assert "there is no node no-such-node" in outcome.reason
    assert proxy.count("POST", "/binding") == 0
    await stage.api.create_binding(placed(pod, "").pod, uid=pod["metadata"]["uid"], node="no-such-node")
    assert node_of(cluster, pod) == "no-such-node"  # which is why we look ourselves


@pytest.mark.parametrize("status", [400, 422])
async def test_what_the_server_calls_invalid_is_rejected_at_once(
    status: int, stage: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy
) -> None:
    """A fault: the real server takes any name of a node, and answers 500 to none."""
    pod = await waiting(stage, make_pod)
    proxy.fail("POST", "/binding", status=status)
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert str(status) in outcome.reason
    assert proxy.count("POST", "/binding") == 1


async def test_without_the_permission_the_outcome_names_the_rule(
    nodes: None, stage: EffectHarness, make_pod: MakePod, cluster: Cluster, proxy: FaultProxy
) -> None:
    pod = await waiting(stage, make_pod)
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterroles/koordstream-gateway"
    role = cluster.api.call("GET", binding)
    rules = [rule for rule in role["rules"] if rule["resources"] != ["pods/binding"]]
    cluster.api.call("PATCH", binding, {"rules": rules})
    try:
        await until_forbidden(stage.api, pod)
        (outcome,) = await stage.ask(placed(pod, "bind-1"))
    finally:
        cluster.api.call("PATCH", binding, {"rules": role["rules"]})
    assert isinstance(outcome, MissingPermission)
    assert outcome.rule == "create pods/binding"
    assert outcome.pod_uid == pod["metadata"]["uid"]


async def until_forbidden(api: KubeApi, pod: dict[str, Any]) -> None:
    """The API server learns of a changed role within moments; ask with a wrong uid, which does no harm."""
    for _ in range(100):
        try:
            await api.create_binding(placed(pod, "").pod, uid="of-nobody", node="bind-1")
        except Forbidden:
            return
        except Conflict:
            await asyncio.sleep(0.05)


async def test_in_a_namespace_that_is_going_away_a_pod_is_rejected(
    stage: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster, namespace: str
) -> None:
    """No controller runs that would delete the pod, so it waits there."""
    pod = await waiting(stage, make_pod)
    cluster.api.call("DELETE", f"/api/v1/namespaces/{namespace}")
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert "being terminated" in outcome.reason


async def test_a_pod_that_is_being_deleted_is_rejected(
    stage: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster
) -> None:
    pod = await waiting(stage, make_pod, metadata={"finalizers": ["example.com/stay"]})
    cluster.api.call("DELETE", pod_path(pod) + "?gracePeriodSeconds=0")
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    cluster.api.call("PATCH", pod_path(pod), {"metadata": {"finalizers": None}})
    assert isinstance(outcome, BindRejected)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_server_is_asked_again(
    status: int, stage: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy, cluster: Cluster
) -> None:
    pod = await waiting(stage, make_pod)
    proxy.fail("POST", "/binding", status=status, times=2)
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)
    assert proxy.count("POST", "/binding") == 3
    assert stage.checks == 3  # the lock is looked at before each try


async def test_a_server_that_says_when_to_come_back_is_left_alone_until_then(
    stage: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy
) -> None:
    pod = await waiting(stage, make_pod)
    proxy.fail("POST", "/binding", status=429, retry_after_s=1, times=2)
    began = asyncio.get_running_loop().time()
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)
    assert asyncio.get_running_loop().time() - began >= 1


async def test_a_server_that_stays_busy_ends_in_bind_failed(
    stage: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy, cluster: Cluster
) -> None:
    pod = await waiting(stage, make_pod)
    proxy.fail("POST", "/binding", status=503, times=-1)
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, BindFailed)
    assert "503" in outcome.reason
    assert proxy.count("POST", "/binding") == stage.settings.tries
    assert node_of(cluster, pod) == ""


async def test_a_server_that_cannot_be_reached_is_asked_again(
    stage: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy
) -> None:
    pod = await waiting(stage, make_pod)
    proxy.fail("POST", "/binding", "refuse", times=2)
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)


@pytest.mark.parametrize("kind", ["lose", "swallow"])
async def test_an_answer_that_is_lost_is_read_back_and_the_pod_is_not_bound_twice(
    kind: str, stage: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy, cluster: Cluster
) -> None:
    pod = await waiting(stage, make_pod)
    proxy.fail("POST", "/binding", kind)
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)
    assert node_of(cluster, pod) == "bind-1"
    assert proxy.count("POST", "/binding") == 1


async def test_a_request_that_hangs_is_read_back_and_tried_again(
    stage: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy
) -> None:
    pod = await waiting(stage, make_pod)
    proxy.fail("POST", "/binding", "hang")
    (outcome,) = await stage.ask(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)
    assert proxy.count("POST", "/binding") == 2


async def test_many_pods_are_bound_at_once_and_those_of_one_object_in_order(
    stage: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy
) -> None:
    pods = [await waiting(stage, make_pod, f"web-{number}") for number in range(20)]
    first, second = placed(pods[0], "bind-1"), placed(pods[0], "bind-2")
    outcomes = await stage.ask(first, second, *(placed(pod, "bind-2") for pod in pods[1:]))
    ours = [outcome for outcome in outcomes if outcome.pod == first.pod]  # type: ignore[attr-defined]
    assert [type(outcome) for outcome in ours] == [PodBound, BindRejected]
    assert sum(isinstance(outcome, PodBound) for outcome in outcomes) == 20
    assert (await stage.api.find(PODS, first.pod)).object.spec.node_name == "bind-1"  # type: ignore[union-attr]
