"""Evictions on a real API server, with real disruption budgets."""

import asyncio
from typing import Any

import pytest

from cli.dev.local_control_plane import Cluster
from shared.events.cluster import EvictionFailed, EvictionRejected, MissingPermission, PodEvicted
from shared.events.intents import EvictionRequested
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.conftest import MakePod
from tests.integration.gateway.effect_harness import EffectHarness
from tests.integration.gateway.fault_proxy import FaultProxy
from tests.support.waiting import until


def eviction_of(pod: dict[str, Any], **fields: Any) -> EvictionRequested:
    metadata = pod["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    return EvictionRequested(pod=key, pod_uid=metadata["uid"], reason="node is hot", **fields)


@pytest.fixture
async def pod(harness: EffectHarness, make_pod: MakePod, kube_nodes: MakeNodes) -> dict[str, Any]:
    """A pod on a node. Bound to a node without a kubelet, it stays in deletion once it is deleted."""
    kube_nodes("evict-1")
    made = make_pod("web", metadata={"labels": {"app": "web"}}, nodeName="evict-1")
    await harness.observe("pods", f"{made['metadata']['namespace']}/web")
    return made


def path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def budget(cluster: Cluster, namespace: str, allowed: int) -> None:
    """Creates a disruption budget with the status that its controller would write."""
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
    # A budget protects pods that are running and ready; the eviction of others is always allowed.
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.api.call("PATCH", f"/api/v1/namespaces/{namespace}/pods/web/status", {"status": running})


async def test_a_pod_is_evicted_with_its_grace_period(
    harness: EffectHarness, pod: dict[str, Any], cluster: Cluster
) -> None:
    (outcome,) = await harness.carry_out(eviction_of(pod, grace_period_s=7))
    assert isinstance(outcome, PodEvicted)
    metadata = cluster.api.call("GET", path(pod))["metadata"]
    assert metadata["deletionTimestamp"]
    assert metadata["deletionGracePeriodSeconds"] == 7


async def test_a_pod_that_is_gone_is_evicted(harness: EffectHarness, pod: dict[str, Any], cluster: Cluster) -> None:
    cluster.api.call("DELETE", path(pod) + "?gracePeriodSeconds=0")
    (outcome,) = await harness.carry_out(eviction_of(pod))
    assert isinstance(outcome, PodEvicted)


async def test_another_pod_under_the_same_name_is_not_evicted(
    harness: EffectHarness, pod: dict[str, Any], cluster: Cluster, make_pod: MakePod
) -> None:
    cluster.api.call("DELETE", path(pod) + "?gracePeriodSeconds=0")
    make_pod("web")
    (outcome,) = await harness.carry_out(eviction_of(pod))
    assert isinstance(outcome, PodEvicted)  # the pod with the requested uid is deleted
    assert "deletionTimestamp" not in cluster.api.call("GET", path(pod))["metadata"]


async def test_an_eviction_beyond_a_disruption_budget_is_rejected(
    harness: EffectHarness, pod: dict[str, Any], cluster: Cluster, namespace: str, proxy: FaultProxy
) -> None:
    budget(cluster, namespace, allowed=0)
    (outcome,) = await harness.carry_out(eviction_of(pod))
    assert isinstance(outcome, EvictionRejected)
    assert "disruption budget" in outcome.reason
    assert proxy.count("POST", "/eviction") == 1
    assert "deletionTimestamp" not in cluster.api.call("GET", path(pod))["metadata"]


async def test_a_budget_rejection_for_a_pod_deleted_meanwhile_counts_as_evicted(
    harness: EffectHarness, pod: dict[str, Any], cluster: Cluster, namespace: str, make_pod: MakePod
) -> None:
    """The API server checks the budget by name before it compares the uid."""
    cluster.api.call("DELETE", path(pod) + "?gracePeriodSeconds=0")
    make_pod("web", metadata={"labels": {"app": "web"}}, nodeName="evict-1")
    budget(cluster, namespace, allowed=0)
    (outcome,) = await harness.carry_out(eviction_of(pod))
    assert isinstance(outcome, PodEvicted)


async def test_an_eviction_within_a_disruption_budget_succeeds(
    harness: EffectHarness, pod: dict[str, Any], cluster: Cluster, namespace: str
) -> None:
    budget(cluster, namespace, allowed=1)
    (outcome,) = await harness.carry_out(eviction_of(pod))
    assert isinstance(outcome, PodEvicted)


async def test_an_eviction_in_a_terminating_namespace_is_rejected(
    harness: EffectHarness, pod: dict[str, Any], cluster: Cluster, namespace: str
) -> None:
    """No namespace controller runs here that would delete its pods."""
    cluster.api.call("DELETE", f"/api/v1/namespaces/{namespace}")
    (outcome,) = await harness.carry_out(eviction_of(pod))
    assert isinstance(outcome, EvictionRejected)
    assert "being terminated" in outcome.reason


async def test_without_the_permission_the_outcome_names_the_rule(
    harness: EffectHarness, pod: dict[str, Any], proxy: FaultProxy
) -> None:
    proxy.fail("POST", "/eviction", status=403, reason="Forbidden")
    (outcome,) = await harness.carry_out(eviction_of(pod))
    assert isinstance(outcome, MissingPermission)
    assert outcome.rule == "create pods/eviction"


async def test_a_request_to_a_busy_server_is_retried(
    harness: EffectHarness, pod: dict[str, Any], proxy: FaultProxy
) -> None:
    proxy.fail("POST", "/eviction", status=429)
    proxy.fail("POST", "/eviction", status=500)
    (outcome,) = await harness.carry_out(eviction_of(pod))
    assert isinstance(outcome, PodEvicted)
    assert proxy.count("POST", "/eviction") == 3


@pytest.mark.parametrize(("kind", "posts"), [("lose", 1), ("swallow", 1), ("hang", 2)])
async def test_after_a_lost_response_the_evicted_pod_is_read_back(
    kind: str, posts: int, harness: EffectHarness, pod: dict[str, Any], proxy: FaultProxy
) -> None:
    proxy.fail("POST", "/eviction", kind)
    (outcome,) = await harness.carry_out(eviction_of(pod))
    assert isinstance(outcome, PodEvicted)
    assert proxy.count("POST", "/eviction") == posts


async def test_a_server_that_stays_busy_ends_in_eviction_failed(
    harness: EffectHarness, pod: dict[str, Any], proxy: FaultProxy
) -> None:
    proxy.fail("POST", "/eviction", status=500, times=-1)
    (outcome,) = await harness.carry_out(eviction_of(pod))
    assert isinstance(outcome, EvictionFailed)


@pytest.mark.parametrize("status", [400, 422])
async def test_an_invalid_eviction_is_rejected(
    status: int, harness: EffectHarness, pod: dict[str, Any], proxy: FaultProxy
) -> None:
    proxy.fail("POST", "/eviction", status=status)
    (outcome,) = await harness.carry_out(eviction_of(pod))
    assert isinstance(outcome, EvictionRejected)


async def test_an_eviction_without_an_answer_spends_budget_once_its_pod_is_read(
    harness: EffectHarness, pod: dict[str, Any], cluster: Cluster, proxy: FaultProxy
) -> None:
    proxy.fail("POST", "/eviction", "lose", times=-1)
    unread = proxy.fail("GET", "/pods/web", times=-1)
    evicting = asyncio.create_task(harness.carry_out(eviction_of(pod)))
    await until(lambda: unread.met > harness.settings.tries + 3)
    assert not harness.outcomes
    unread.times = 0
    (outcome,) = await evicting
    assert isinstance(outcome, PodEvicted)
    assert outcome.node == "evict-1"
    assert cluster.api.call("GET", path(pod))["metadata"]["deletionTimestamp"]


async def test_a_pod_whose_held_destination_was_lost_meanwhile_stays(
    harness: EffectHarness, pod: dict[str, Any], cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    name = f"held-{pod['metadata']['uid'][:8]}"
    collection = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
    (gone,) = await harness.carry_out(eviction_of(pod, reservation=name))
    assert isinstance(gone, EvictionRejected)
    assert gone.reason == f"Reservation {name}, which held its destination, is gone"
    cluster.api.call("POST", collection, {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"owners": [{"object": {"name": "x"}}], "ttl": "1h", "template": {}},
    })  # fmt: skip
    request.addfinalizer(lambda: cluster.api.call("DELETE", f"{collection}/{name}"))
    status: dict[str, Any] = {
        "phase": "Available",
        "nodeName": "evict-1",
        "currentOwners": [{"namespace": "d", "name": "y"}],
    }
    cluster.api.call("PATCH", f"{collection}/{name}/status", {"status": status})
    (used,) = await harness.carry_out(eviction_of(pod, reservation=name))
    assert isinstance(used, EvictionRejected)
    assert used.reason == f"Reservation {name}, which held its destination, is used by d/y"
    assert "deletionTimestamp" not in cluster.api.call("GET", path(pod))["metadata"]
    cluster.api.call("PATCH", f"{collection}/{name}/status", {"status": {"currentOwners": None}})
    (evicted,) = await harness.carry_out(eviction_of(pod, reservation=name))
    assert isinstance(evicted, PodEvicted)
    cluster.api.call("PATCH", f"{collection}/{name}/status", {"status": status})
    (again,) = await harness.carry_out(eviction_of(pod, reservation=name))
    assert isinstance(again, PodEvicted), "a crash came before the outcome, and the successor uses the place"
