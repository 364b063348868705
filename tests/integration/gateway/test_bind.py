"""Bindings: every response of a real API server, and every way of getting none, ends in a recorded outcome."""

import asyncio
from typing import Any

import msgspec
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
from tests.support.waiting import until


@pytest.fixture
async def nodes(harness: EffectHarness, kube_nodes: MakeNodes) -> None:
    names = ("bind-1", "bind-2")
    kube_nodes(*names)
    await harness.observe("nodes", *names)


def node_of(cluster: Cluster, pod: dict[str, Any]) -> str:
    metadata = pod["metadata"]
    found = cluster.api.call("GET", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}")
    return str(found["spec"].get("nodeName", ""))


async def waiting(harness: EffectHarness, make_pod: MakePod, name: str = "web", **more: object) -> dict[str, Any]:
    """Creates a pod and observes it."""
    pod = make_pod(name, **more)
    await harness.observe("pods", f"{pod['metadata']['namespace']}/{name}")
    return pod


async def test_a_pod_is_bound(harness: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster) -> None:
    pod = await waiting(harness, make_pod)
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)
    assert node_of(cluster, pod) == "bind-1"
    assert harness.checks == 1


async def test_bound_pods_have_a_scheduled_event_that_is_written_after_the_bindings(
    harness: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster
) -> None:
    pods = [await waiting(harness, make_pod, f"web-{number}") for number in range(6)]
    await harness.carry_out(*(placed(pod, "bind-2") for pod in pods))
    namespace = pods[0]["metadata"]["namespace"]
    events = {event["involvedObject"]["uid"]: event for event in listed(cluster, namespace, "events")}
    for pod in pods:
        event = events[pod["metadata"]["uid"]]
        name = pod["metadata"]["name"]
        assert event["message"] == f"Successfully assigned {namespace}/{name} to bind-2"
        assert (event["type"], event["reason"], event["count"]) == ("Normal", "Scheduled", 1)
        assert event["source"]["component"] == f"koordstream/{pod['spec']['schedulerName']}"
    last_binding = max(int(pod["metadata"]["resourceVersion"]) for pod in listed(cluster, namespace, "pods"))
    assert all(int(event["metadata"]["resourceVersion"]) > last_binding for event in events.values())


def listed(cluster: Cluster, namespace: str, resource: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cluster.api.call("GET", f"/api/v1/namespaces/{namespace}/{resource}")["items"]
    return items


async def test_no_scheduled_event_is_written_where_the_setting_is_off(
    harness: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster
) -> None:
    harness.settings = msgspec.structs.replace(harness.settings, scheduled_events=False)
    pod = await waiting(harness, make_pod)
    await harness.carry_out(placed(pod, "bind-1"))
    assert listed(cluster, pod["metadata"]["namespace"], "events") == []


async def test_the_binding_of_a_deleted_pod_is_rejected(
    harness: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster
) -> None:
    pod = await waiting(harness, make_pod)
    cluster.api.call("DELETE", pod_path(pod) + "?gracePeriodSeconds=0")
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert "404" in outcome.reason


def pod_path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


async def test_a_pod_with_another_uid_is_not_bound(
    harness: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster
) -> None:
    first = await waiting(harness, make_pod)
    cluster.api.call("DELETE", pod_path(first) + "?gracePeriodSeconds=0")
    second = make_pod("web")
    (outcome,) = await harness.carry_out(placed(first, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert "is gone" in outcome.reason
    assert node_of(cluster, second) == ""


async def test_a_binding_that_already_exists_is_a_success(
    harness: EffectHarness, nodes: None, make_pod: MakePod, api: KubeApi
) -> None:
    pod = await waiting(harness, make_pod)
    await api.create_binding(placed(pod, "").pod, uid=pod["metadata"]["uid"], node="bind-1")
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)


async def test_a_pod_that_another_scheduler_bound_is_rejected(
    harness: EffectHarness, nodes: None, make_pod: MakePod, api: KubeApi, cluster: Cluster
) -> None:
    pod = await waiting(harness, make_pod)
    await api.create_binding(placed(pod, "").pod, uid=pod["metadata"]["uid"], node="bind-2")
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert "bind-2 already" in outcome.reason
    assert node_of(cluster, pod) == "bind-2"


async def test_a_gated_pod_is_rejected_with_the_servers_reason(
    harness: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster
) -> None:
    pod = await waiting(harness, make_pod, schedulingGates=[{"name": "example.com/wait"}])
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert "schedulingGates" in outcome.reason
    assert node_of(cluster, pod) == ""


async def test_a_missing_node_is_rejected_although_the_api_server_would_accept_it(
    harness: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster, proxy: FaultProxy
) -> None:
    pod = await waiting(harness, make_pod)
    (outcome,) = await harness.carry_out(placed(pod, "no-such-node"))
    assert isinstance(outcome, BindRejected)
    assert "there is no node no-such-node" in outcome.reason
    assert proxy.count("POST", "/binding") == 0
    await harness.api.create_binding(placed(pod, "").pod, uid=pod["metadata"]["uid"], node="no-such-node")
    assert node_of(cluster, pod) == "no-such-node"  # the API server does not check, so the gateway does


@pytest.mark.parametrize("status", [400, 422])
async def test_an_invalid_request_is_rejected_at_once(
    status: int, harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy
) -> None:
    """A fault, since the real server accepts any name of a node and answers 500 only to an empty one."""
    pod = await waiting(harness, make_pod)
    proxy.fail("POST", "/binding", status=status)
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert str(status) in outcome.reason
    assert proxy.count("POST", "/binding") == 1


async def test_without_the_permission_the_outcome_names_the_rule(
    nodes: None, harness: EffectHarness, make_pod: MakePod, cluster: Cluster, proxy: FaultProxy
) -> None:
    pod = await waiting(harness, make_pod)
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterroles/koordstream-gateway"
    role = cluster.api.call("GET", binding)
    rules = [rule for rule in role["rules"] if rule["resources"] != ["pods/binding"]]
    cluster.api.call("PATCH", binding, {"rules": rules})
    try:
        await until_forbidden(harness.api, pod)
        (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    finally:
        cluster.api.call("PATCH", binding, {"rules": role["rules"]})
    assert isinstance(outcome, MissingPermission)
    assert outcome.rule == "create pods/binding"
    assert outcome.pod_uid == pod["metadata"]["uid"]


async def until_forbidden(api: KubeApi, pod: dict[str, Any]) -> None:
    """Waits until the API server applies the changed role, by bindings with a wrong uid, which bind nothing."""
    for _ in range(100):
        try:
            await api.create_binding(placed(pod, "").pod, uid="of-nobody", node="bind-1")
        except Forbidden:
            return
        except Conflict:
            await asyncio.sleep(0.05)


async def test_a_binding_in_a_terminating_namespace_is_rejected(
    harness: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster, namespace: str
) -> None:
    """No namespace controller runs that would delete the pod, so the pod stays."""
    pod = await waiting(harness, make_pod)
    cluster.api.call("DELETE", f"/api/v1/namespaces/{namespace}")
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, BindRejected)
    assert "being terminated" in outcome.reason


async def test_the_binding_of_a_terminating_pod_is_rejected(
    harness: EffectHarness, nodes: None, make_pod: MakePod, cluster: Cluster
) -> None:
    pod = await waiting(harness, make_pod, metadata={"finalizers": ["example.com/stay"]})
    cluster.api.call("DELETE", pod_path(pod) + "?gracePeriodSeconds=0")
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    cluster.api.call("PATCH", pod_path(pod), {"metadata": {"finalizers": None}})
    assert isinstance(outcome, BindRejected)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_request_to_a_busy_server_is_retried(
    status: int, harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy, cluster: Cluster
) -> None:
    pod = await waiting(harness, make_pod)
    proxy.fail("POST", "/binding", status=status, times=2)
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)
    assert proxy.count("POST", "/binding") == 3
    assert harness.checks == 3  # the lock is checked before each try


async def test_a_pause_requested_by_the_server_is_kept(
    harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy
) -> None:
    pod = await waiting(harness, make_pod)
    proxy.fail("POST", "/binding", status=429, retry_after_s=1, times=2)
    began = asyncio.get_running_loop().time()
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)
    assert asyncio.get_running_loop().time() - began >= 1


async def test_a_server_that_stays_busy_ends_in_bind_failed(
    harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy, cluster: Cluster
) -> None:
    pod = await waiting(harness, make_pod)
    proxy.fail("POST", "/binding", status=503, times=-1)
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, BindFailed)
    assert "503" in outcome.reason
    assert proxy.count("POST", "/binding") == harness.settings.tries
    assert node_of(cluster, pod) == ""


async def test_a_request_to_an_unreachable_server_is_retried(
    harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy
) -> None:
    pod = await waiting(harness, make_pod)
    proxy.fail("POST", "/binding", "refuse", times=2)
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)


@pytest.mark.parametrize("kind", ["lose", "swallow"])
async def test_after_a_lost_response_the_pod_is_read_back_and_not_bound_twice(
    kind: str, harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy, cluster: Cluster
) -> None:
    pod = await waiting(harness, make_pod)
    proxy.fail("POST", "/binding", kind)
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)
    assert node_of(cluster, pod) == "bind-1"
    assert proxy.count("POST", "/binding") == 1


async def test_after_a_hanging_request_the_pod_is_read_back_and_the_binding_retried(
    harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy
) -> None:
    pod = await waiting(harness, make_pod)
    proxy.fail("POST", "/binding", "hang")
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)
    assert proxy.count("POST", "/binding") == 2


async def test_a_binding_without_an_answer_has_no_outcome_until_its_pod_is_read(
    harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy, cluster: Cluster
) -> None:
    pod = await waiting(harness, make_pod)
    lost = proxy.fail("POST", "/binding", "lose", times=-1)
    unread = proxy.fail("GET", "/pods/web", times=-1)
    binding = asyncio.create_task(harness.carry_out(placed(pod, "bind-1")))
    await until(lambda: unread.met > harness.settings.tries + 3)
    assert not harness.outcomes
    assert lost.met == harness.settings.tries  # it only reads by now
    unread.times = 0
    (outcome,) = await binding
    assert isinstance(outcome, PodBound)
    assert node_of(cluster, pod) == "bind-1"


async def test_what_is_observed_ends_a_binding_without_an_answer(
    harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy, cluster: Cluster
) -> None:
    pod = await waiting(harness, make_pod)
    proxy.fail("POST", "/binding", "refuse", times=-1)
    unread = proxy.fail("GET", "/pods/web", times=-1)
    binding = asyncio.create_task(harness.carry_out(placed(pod, "bind-1")))
    await until(lambda: unread.met > harness.settings.tries + 3)
    cluster.api.call("DELETE", pod_path(pod) + "?gracePeriodSeconds=0")
    assert not harness.outcomes
    harness.deleted("pods", placed(pod, "").pod)
    (outcome,) = await binding
    assert isinstance(outcome, BindRejected)
    assert "is gone" in outcome.reason


async def test_a_binding_that_the_server_never_got_ends_in_bind_failed(
    harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy, cluster: Cluster
) -> None:
    pod = await waiting(harness, make_pod)
    proxy.fail("POST", "/binding", "refuse", times=-1)
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, BindFailed)
    assert node_of(cluster, pod) == ""


async def test_a_refusal_after_a_lost_response_is_no_outcome_until_the_pod_is_read(
    harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy, cluster: Cluster
) -> None:
    pod = await waiting(harness, make_pod)
    proxy.fail("POST", "/binding", "lose")
    proxy.fail("GET", "/pods/web")
    proxy.fail("POST", "/binding", status=403, reason="Forbidden")
    (outcome,) = await harness.carry_out(placed(pod, "bind-1"))
    assert isinstance(outcome, PodBound)
    assert node_of(cluster, pod) == "bind-1"


async def test_many_pods_are_bound_at_once_and_those_of_one_object_in_order(
    harness: EffectHarness, nodes: None, make_pod: MakePod, proxy: FaultProxy
) -> None:
    pods = [await waiting(harness, make_pod, f"web-{number}") for number in range(20)]
    first, second = placed(pods[0], "bind-1"), placed(pods[0], "bind-2")
    outcomes = await harness.carry_out(first, second, *(placed(pod, "bind-2") for pod in pods[1:]))
    ours = [outcome for outcome in outcomes if outcome.pod == first.pod]  # type: ignore[attr-defined]
    assert [type(outcome) for outcome in ours] == [PodBound, BindRejected]
    assert sum(isinstance(outcome, PodBound) for outcome in outcomes) == 20
    assert (await harness.api.find(PODS, first.pod)).object.spec.node_name == "bind-1"  # type: ignore[union-attr]
