"""Bindings under a lock on the node, for device plugins that serve one pod at a time, on a real API server."""

import time
from typing import Any

import pytest

from cli.dev.local_control_plane import Cluster
from services.gateway.kube_api.client import KubeApi
from shared.domain.node_lock import HAMI_LOCK, lock_text
from shared.events import Event
from shared.events.cluster import BindRejected, PodBound
from shared.kube.instants import SECOND
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.conftest import MakePod
from tests.integration.gateway.effect_harness import EffectHarness, placed
from tests.integration.gateway.fault_proxy import FaultProxy

NODE = "locked-1"
NODE_PATH = f"/api/v1/nodes/{NODE}"
AGO_NS = 301 * SECOND


@pytest.fixture
async def node(harness: EffectHarness, kube_nodes: MakeNodes) -> None:
    kube_nodes(NODE)
    await harness.observe("nodes", NODE)


async def under_lock(harness: EffectHarness, *pods: dict[str, Any]) -> list[Event]:
    """Carries out the placements of pods on the node."""
    for pod in pods:
        await harness.observe("pods", key_of(pod))
    return await harness.carry_out(*(placed(pod, NODE, node_lock=HAMI_LOCK) for pod in pods))


def key_of(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def lock_of(cluster: Cluster) -> str | None:
    annotations: dict[str, str] = cluster.api.call("GET", NODE_PATH)["metadata"].get("annotations", {})
    return annotations.get(HAMI_LOCK)


def write_lock(cluster: Cluster, text: str | None) -> None:
    cluster.api.call("PATCH", NODE_PATH, {"metadata": {"annotations": {HAMI_LOCK: text}}})


async def test_a_pod_waits_until_the_plugin_has_removed_the_lock_of_the_pod_before_it(
    harness: EffectHarness, node: None, make_pod: MakePod, cluster: Cluster, proxy: FaultProxy
) -> None:
    first, second = make_pod("first"), make_pod("second")
    assert [type(outcome) for outcome in await under_lock(harness, first)] == [PodBound]
    text = lock_of(cluster)
    assert text is not None
    assert text.endswith(f"Z,{first['metadata']['namespace']},first")
    (outcome,) = await under_lock(harness, second)
    assert isinstance(outcome, BindRejected)
    assert f"{NODE} is locked for {key_of(first)} ({HAMI_LOCK})" in outcome.reason
    assert lock_of(cluster) == text
    assert proxy.count("POST", "/binding") == 1
    write_lock(cluster, None)
    assert [type(outcome) for outcome in await under_lock(harness, second)] == [PodBound]


async def test_of_pods_that_are_bound_at_once_one_takes_the_lock(
    harness: EffectHarness, node: None, make_pod: MakePod, cluster: Cluster
) -> None:
    outcomes = await under_lock(harness, *(make_pod(f"pod-{number}") for number in range(5)))
    (bound,) = (outcome for outcome in outcomes if isinstance(outcome, PodBound))
    assert [type(outcome) for outcome in outcomes].count(BindRejected) == 4
    assert (lock_of(cluster) or "").endswith("," + bound.pod.replace("/", ","))


@pytest.mark.parametrize("case", ["old", "of the future", "of a pod that is gone", "of the pod itself"])
async def test_a_lock_that_nobody_needs_is_taken_over(
    case: str, harness: EffectHarness, node: None, make_pod: MakePod, cluster: Cluster
) -> None:
    pod, other = make_pod("web"), key_of(make_pod("other"))
    held = {
        "old": lock_text(other, time.time_ns() - AGO_NS),
        "of the future": lock_text(other, time.time_ns() + 2 * AGO_NS),
        "of a pod that is gone": lock_text("default/gone", time.time_ns()),
        "of the pod itself": lock_text(key_of(pod), time.time_ns() - 100 * SECOND),
    }[case]
    write_lock(cluster, held)
    assert [type(outcome) for outcome in await under_lock(harness, pod)] == [PodBound]
    assert lock_of(cluster) not in (None, held)
    assert (lock_of(cluster) or "").endswith(",web")


async def test_a_lock_that_cannot_be_read_is_kept(
    harness: EffectHarness, node: None, make_pod: MakePod, cluster: Cluster
) -> None:
    write_lock(cluster, "{}")
    (outcome,) = await under_lock(harness, make_pod("web"))
    assert isinstance(outcome, BindRejected)
    assert f"annotation {HAMI_LOCK} of node {NODE}: '{{}}' is no lock" in outcome.reason
    assert lock_of(cluster) == "{}"


async def test_a_lock_whose_write_got_no_answer_is_the_pods_own(
    harness: EffectHarness, node: None, make_pod: MakePod, cluster: Cluster, proxy: FaultProxy
) -> None:
    proxy.fail("PATCH", f"/nodes/{NODE}", "lose")
    assert [type(outcome) for outcome in await under_lock(harness, make_pod("web"))] == [PodBound]
    assert proxy.count("PATCH", f"/nodes/{NODE}") == 2


async def test_a_pod_that_is_bound_already_takes_no_lock(
    harness: EffectHarness, node: None, make_pod: MakePod, cluster: Cluster, api: KubeApi
) -> None:
    pod = make_pod("web")
    await harness.observe("pods", key_of(pod))
    await api.create_binding(key_of(pod), uid=pod["metadata"]["uid"], node=NODE)
    (outcome,) = await harness.carry_out(placed(pod, NODE, node_lock=HAMI_LOCK))
    assert isinstance(outcome, PodBound)
    assert lock_of(cluster) is None
