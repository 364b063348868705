"""Evicting a pod on a real API server, with real disruption budgets."""

from typing import Any

import pytest

from cli.dev.local_control_plane import Cluster
from shared.events.cluster import EvictionFailed, EvictionRejected, MissingPermission, PodEvicted
from shared.events.intents import EvictionRequested
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.conftest import MakePod
from tests.integration.gateway.effect_harness import EffectHarness
from tests.integration.gateway.fault_proxy import FaultProxy


def asked(pod: dict[str, Any], **fields: Any) -> EvictionRequested:
    metadata = pod["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    return EvictionRequested(pod=key, pod_uid=metadata["uid"], reason="node is hot", **fields)


@pytest.fixture
async def pod(stage: EffectHarness, make_pod: MakePod, kube_nodes: MakeNodes) -> dict[str, Any]:
    """A pod on a node. Bound to a node without a kubelet, it stays in deletion once it is deleted."""
    kube_nodes("evict-1")
    made = make_pod("web", metadata={"labels": {"app": "web"}}, nodeName="evict-1")
    await stage.observe("pods", f"{made['metadata']['namespace']}/web")
    return made


def path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def budget(cluster: Cluster, namespace: str, allowed: int) -> None:
    """A disruption budget whose status says how many may go, as the controller would write it."""
    collection = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    body = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    made = cluster.api.call("POST", collection, body)
    status = {
        "observedGeneration": made["metadata"]["generation"],
        "disruptionsAllowed": allowed,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    cluster.api.call("PATCH", f"{collection}/web/status", {"status": status})
    # A budget protects pods that are running and ready; others may always go.
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.api.call("PATCH", f"/api/v1/namespaces/{namespace}/pods/web/status", {"status": running})


async def test_a_pod_is_evicted_with_its_grace_period(
    stage: EffectHarness, pod: dict[str, Any], cluster: Cluster
) -> None:
    (outcome,) = await stage.ask(asked(pod, grace_period_s=7))
    assert isinstance(outcome, PodEvicted)
    metadata = cluster.api.call("GET", path(pod))["metadata"]
    assert metadata["deletionTimestamp"]
    assert metadata["deletionGracePeriodSeconds"] == 7


async def test_a_pod_that_is_gone_is_evicted(stage: EffectHarness, pod: dict[str, Any], cluster: Cluster) -> None:
    cluster.api.call("DELETE", path(pod) + "?gracePeriodSeconds=0")
    (outcome,) = await stage.ask(asked(pod))
    assert isinstance(outcome, PodEvicted)


async def test_another_pod_under_the_same_name_is_not_evicted(
    stage: EffectHarness, pod: dict[str, Any], cluster: Cluster, make_pod: MakePod
) -> None:
    cluster.api.call("DELETE", path(pod) + "?gracePeriodSeconds=0")
    make_pod("web")
    (outcome,) = await stage.ask(asked(pod))
    assert isinstance(outcome, PodEvicted)  # the one that was meant is gone
    assert "deletionTimestamp" not in cluster.api.call("GET", path(pod))["metadata"]


async def test_a_disruption_budget_refuses(
    stage: EffectHarness, pod: dict[str, Any], cluster: Cluster, namespace: str, proxy: FaultProxy
) -> None:
    budget(cluster, namespace, allowed=0)
    (outcome,) = await stage.ask(asked(pod))
    assert isinstance(outcome, EvictionRejected)
    assert "disruption budget" in outcome.reason
    assert proxy.count("POST", "/eviction") == 1
    assert "deletionTimestamp" not in cluster.api.call("GET", path(pod))["metadata"]


async def test_a_disruption_budget_that_refuses_for_a_pod_that_went_meanwhile_is_no_refusal(
    stage: EffectHarness, pod: dict[str, Any], cluster: Cluster, namespace: str, make_pod: MakePod
) -> None:
    """The budget answers for the name before anyone looks at the uid."""
    cluster.api.call("DELETE", path(pod) + "?gracePeriodSeconds=0")
    make_pod("web", metadata={"labels": {"app": "web"}}, nodeName="evict-1")
    budget(cluster, namespace, allowed=0)
    (outcome,) = await stage.ask(asked(pod))
    assert isinstance(outcome, PodEvicted)


async def test_a_disruption_budget_with_room_lets_the_pod_go(
    stage: EffectHarness, pod: dict[str, Any], cluster: Cluster, namespace: str
) -> None:
    budget(cluster, namespace, allowed=1)
    (outcome,) = await stage.ask(asked(pod))
    assert isinstance(outcome, PodEvicted)


async def test_in_a_namespace_that_is_going_away_an_eviction_is_refused(
    stage: EffectHarness, pod: dict[str, Any], cluster: Cluster, namespace: str
) -> None:
    """Its pods go with it; no controller runs here that would delete them."""
    cluster.api.call("DELETE", f"/api/v1/namespaces/{namespace}")
    (outcome,) = await stage.ask(asked(pod))
    assert isinstance(outcome, EvictionRejected)
    assert "being terminated" in outcome.reason


async def test_without_the_permission_the_outcome_names_the_rule(
    stage: EffectHarness, pod: dict[str, Any], proxy: FaultProxy
) -> None:
    proxy.fail("POST", "/eviction", status=403, reason="Forbidden")
    (outcome,) = await stage.ask(asked(pod))
    assert isinstance(outcome, MissingPermission)
    assert outcome.rule == "create pods/eviction"


async def test_a_busy_server_is_asked_again(stage: EffectHarness, pod: dict[str, Any], proxy: FaultProxy) -> None:
    proxy.fail("POST", "/eviction", status=429)
    proxy.fail("POST", "/eviction", status=500)
    (outcome,) = await stage.ask(asked(pod))
    assert isinstance(outcome, PodEvicted)
    assert proxy.count("POST", "/eviction") == 3


@pytest.mark.parametrize(("kind", "posts"), [("lose", 1), ("swallow", 1), ("hang", 2)])
async def test_a_request_without_an_answer_is_read_back(
    kind: str, posts: int, stage: EffectHarness, pod: dict[str, Any], proxy: FaultProxy
) -> None:
    proxy.fail("POST", "/eviction", kind)
    (outcome,) = await stage.ask(asked(pod))
    assert isinstance(outcome, PodEvicted)
    assert proxy.count("POST", "/eviction") == posts


async def test_a_server_that_stays_busy_ends_in_eviction_failed(
    stage: EffectHarness, pod: dict[str, Any], proxy: FaultProxy
) -> None:
    proxy.fail("POST", "/eviction", status=500, times=-1)
    (outcome,) = await stage.ask(asked(pod))
    assert isinstance(outcome, EvictionFailed)


@pytest.mark.parametrize("status", [400, 422])
async def test_what_the_server_calls_invalid_is_refused(
    status: int, stage: EffectHarness, pod: dict[str, Any], proxy: FaultProxy
) -> None:
    proxy.fail("POST", "/eviction", status=status)
    (outcome,) = await stage.ask(asked(pod))
    assert isinstance(outcome, EvictionRejected)
