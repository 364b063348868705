"""Desired states on a real API server: conditions, status, metadata and custom resources match the newest intent."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from cli.dev.local_control_plane import Cluster
from services.gateway.effects.drift_tracker import Seen
from services.gateway.effects.intent_types import ObjectRef
from services.gateway.kube_api.resources import RESOURCES
from shared.domain.config_rejection import rejection_events
from shared.events import Draft, Event
from shared.events.cluster import (
    DesiredStateApplied,
    DesiredStateFailed,
    DesiredStateRejected,
    DesiredStateSuperseded,
    MissingPermission,
    NodeDeleted,
)
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import ConfigRejected
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.conftest import ACCOUNT, MakePod
from tests.integration.gateway.effect_harness import EffectHarness, unschedulable
from tests.integration.gateway.fault_proxy import FaultProxy
from tests.support.slo_cluster import Cluster as SloCluster
from tests.support.waiting import until

NODE = "desired-1"
NODE_PATH = f"/api/v1/nodes/{NODE}"
QUOTAS = "elasticquotas.scheduling.sigs.k8s.io"
METRICS = "nodemetrics.slo.koordinator.sh"
METRICS_PATH = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"


def batch(milli: int, **more: Any) -> FieldsDesired:
    amounts = {"kubernetes.io/batch-cpu": str(milli)}
    patch = {"status": {"capacity": amounts, "allocatable": amounts}}
    return FieldsDesired(resource="nodes", name=NODE, fields="batch", patch=patch, subresource="status", **more)


def labels(value: str | None, name: str = NODE) -> FieldsDesired:
    patch = {"metadata": {"labels": {"node.koordinator.sh/desired": value}}}
    return FieldsDesired(resource="nodes", name=name, fields="labels", patch=patch)


def allocatable(cluster: Cluster) -> str:
    return str(cluster.api.call("GET", NODE_PATH)["status"]["allocatable"].get("kubernetes.io/batch-cpu"))


@pytest.fixture
async def node(harness: EffectHarness, kube_nodes: MakeNodes) -> str:
    kube_nodes(NODE)
    await harness.observe("nodes", NODE)
    return NODE


# -- fields of an object that exists


async def test_only_the_desired_status_fields_of_a_node_are_written(
    harness: EffectHarness, node: str, cluster: Cluster
) -> None:
    before = cluster.api.call("GET", NODE_PATH)
    (outcome,) = await harness.carry_out(batch(1500))
    assert outcome == DesiredStateApplied(resource="nodes", name=NODE, fields="batch")
    after = cluster.api.call("GET", NODE_PATH)
    assert after["status"]["allocatable"] == before["status"]["allocatable"] | {"kubernetes.io/batch-cpu": "1500"}
    assert "koordstream" in {entry["manager"] for entry in after["metadata"]["managedFields"]}


async def test_metadata_is_written_and_null_removes(harness: EffectHarness, node: str, cluster: Cluster) -> None:
    await harness.carry_out(labels("high"))
    assert cluster.api.call("GET", NODE_PATH)["metadata"]["labels"]["node.koordinator.sh/desired"] == "high"
    await harness.carry_out(labels(None))
    assert "node.koordinator.sh/desired" not in cluster.api.call("GET", NODE_PATH)["metadata"]["labels"]


async def test_only_the_newest_desired_state_is_written(
    harness: EffectHarness, node: str, cluster: Cluster, proxy: FaultProxy
) -> None:
    outcomes = await harness.carry_out(batch(1), batch(2), batch(3), labels("a"))
    assert [type(outcome) for outcome in outcomes].count(DesiredStateApplied) == 2
    assert proxy.count("PATCH", "/status") == 1
    assert allocatable(cluster) == "3"
    superseded = [
        record.event for record in harness.log.contexts["cluster"] if isinstance(record.event, DesiredStateSuperseded)
    ]
    assert len(superseded) == 2


async def test_after_a_conflict_the_object_is_read_and_written_again(
    harness: EffectHarness, node: str, cluster: Cluster, proxy: FaultProxy
) -> None:
    """The version of the last watch event is too old: the server answers 409."""
    cluster.api.call("PATCH", NODE_PATH, {"metadata": {"labels": {"someone": "else"}}})
    (outcome,) = await harness.carry_out(labels("high"))
    assert isinstance(outcome, DesiredStateApplied)
    assert proxy.count("PATCH", NODE_PATH) == 2
    found = cluster.api.call("GET", NODE_PATH)["metadata"]["labels"]
    assert (found["someone"], found["node.koordinator.sh/desired"]) == ("else", "high")


@pytest.mark.parametrize("is_observed", [True, False], ids=["observed", "taken since"])
async def test_a_volume_that_has_a_claim_is_not_given_to_another(
    harness: EffectHarness, cluster: Cluster, *, is_observed: bool
) -> None:
    name, claim = "claimed-1", {"kind": "PersistentVolumeClaim", "namespace": "default"}
    first, second = (claim | {"name": each, "uid": f"{each}-uid"} for each in ("first", "second"))
    path = f"/api/v1/persistentvolumes/{name}"
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/nowhere"},
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    cluster.api.call("POST", "/api/v1/persistentvolumes", body)
    if not is_observed:
        await harness.observe("persistentvolumes", name)
    cluster.api.call("PATCH", path, {"spec": {"claimRef": first}})
    if is_observed:
        await harness.observe("persistentvolumes", name)

    def chosen_for(reference: dict[str, str]) -> FieldsDesired:
        patch = {"spec": {"claimRef": reference}}
        return FieldsDesired(resource="persistentvolumes", name=name, fields="volume-binding", patch=patch)

    try:
        (refused,) = await harness.carry_out(chosen_for(second))
        assert isinstance(refused, DesiredStateRejected)
        assert refused.reason == "persistentvolumes claimed-1 has the claim default/first"
        assert cluster.api.call("GET", path)["spec"]["claimRef"]["name"] == "first"
        (applied,) = await harness.carry_out(chosen_for(first))
        assert isinstance(applied, DesiredStateApplied)
    finally:
        cluster.api.call("PATCH", path, {"metadata": {"finalizers": None}})
        cluster.api.call("DELETE", path)


async def test_a_desired_state_of_a_deleted_object_is_rejected(
    harness: EffectHarness, node: str, cluster: Cluster
) -> None:
    cluster.api.call("DELETE", NODE_PATH)
    (outcome,) = await harness.carry_out(batch(1))
    assert isinstance(outcome, DesiredStateRejected)


async def test_a_desired_state_of_an_unknown_object_is_rejected(harness: EffectHarness) -> None:
    (outcome,) = await harness.carry_out(labels("x", name="no-such-node"))
    assert isinstance(outcome, DesiredStateRejected)
    assert "is gone" in outcome.reason


async def test_an_object_with_another_uid_is_not_written(harness: EffectHarness, node: str, cluster: Cluster) -> None:
    harness.state.known["nodes"].clear()  # not observed yet
    (outcome,) = await harness.carry_out(batch(1, uid="of-another"))
    assert isinstance(outcome, DesiredStateSuperseded)
    harness.drift_tracker.deleted(ObjectRef("nodes", NODE))  # no version is known either
    (outcome,) = await harness.carry_out(batch(2, uid="of-another"))
    assert isinstance(outcome, DesiredStateSuperseded)
    assert allocatable(cluster) == "None"


async def test_an_invalid_patch_is_rejected(harness: EffectHarness, node: str) -> None:
    patch = {"metadata": {"labels": {"not a label": "x"}}}
    (outcome,) = await harness.carry_out(FieldsDesired(resource="nodes", name=NODE, fields="labels", patch=patch))
    assert isinstance(outcome, DesiredStateRejected)
    assert "422" in outcome.reason


async def test_an_unsupported_resource_is_rejected(harness: EffectHarness) -> None:
    (outcome,) = await harness.carry_out(FieldsDesired(resource="widgets.example.com", name="w", fields="f", patch={}))
    assert isinstance(outcome, DesiredStateRejected)


async def test_without_the_permission_the_outcome_names_the_rule_and_it_is_written_after_the_grant(
    harness: EffectHarness, cluster: Cluster
) -> None:
    """Namespaces may be read, and k8s/rbac grants no patch of them."""
    await harness.carry_out()
    desired = FieldsDesired(
        resource="namespaces", name="default", fields="f", patch={"metadata": {"labels": {"x": "y"}}}
    )
    harness.drift_tracker._versions["namespaces"] = {"default": Seen("1", "")}  # as after a watch event
    (outcome,) = await harness.carry_out(desired)
    assert outcome == MissingPermission(name="default", rule="patch namespaces")
    assert list(harness.state.intents.given_up) == [harness.cause()]
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "patch"]}
    subject = {"kind": "ServiceAccount", "namespace": ACCOUNT[0], "name": ACCOUNT[1]}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "granted-later"}
    roles, bindings = (f"/apis/{group}/v1/{kind}" for kind in ("clusterroles", "clusterrolebindings"))
    named = {"metadata": {"name": "granted-later"}}
    cluster.api.call("POST", roles, named | {"rules": [rule]})
    try:
        cluster.api.call("POST", bindings, named | {"roleRef": role, "subjects": [subject]})
        (outcome,) = await harness.run_due(given_up=True)
        assert isinstance(outcome, DesiredStateApplied)
        assert cluster.api.call("GET", "/api/v1/namespaces/default")["metadata"]["labels"]["x"] == "y"
    finally:
        for collection in (bindings, roles):
            cluster.api.call("DELETE", f"{collection}/granted-later")
        cluster.api.call("PATCH", "/api/v1/namespaces/default", {"metadata": {"labels": {"x": None}}})


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_request_to_a_busy_server_is_retried(
    status: int, harness: EffectHarness, node: str, proxy: FaultProxy, cluster: Cluster
) -> None:
    proxy.fail("PATCH", "/status", status=status)
    (outcome,) = await harness.carry_out(batch(9))
    assert isinstance(outcome, DesiredStateApplied)
    assert allocatable(cluster) == "9"


async def test_a_server_that_stays_busy_ends_in_desired_state_failed(
    harness: EffectHarness, node: str, proxy: FaultProxy
) -> None:
    proxy.fail("PATCH", "/status", status=503, times=-1)
    (outcome,) = await harness.carry_out(batch(9))
    assert isinstance(outcome, DesiredStateFailed)


async def test_a_desired_state_that_was_given_up_is_written_when_the_server_takes_it_again(
    harness: EffectHarness, node: str, proxy: FaultProxy, cluster: Cluster
) -> None:
    await harness.carry_out(batch(4))
    fault = proxy.fail("PATCH", "/status", status=503, times=-1)
    (outcome,) = await harness.carry_out(batch(9))
    assert isinstance(outcome, DesiredStateFailed)
    met = fault.met
    again = asyncio.create_task(harness.run_due(given_up=True))
    await until(lambda: fault.met > met)  # it is tried again, which no event records
    fault.times = 0
    (outcome,) = await again
    assert isinstance(outcome, DesiredStateApplied)
    assert allocatable(cluster) == "9"


@pytest.mark.parametrize(("kind", "patches"), [("lose", 1), ("swallow", 1), ("hang", 2)])
async def test_after_a_lost_response_the_object_is_read_back(
    kind: str, patches: int, harness: EffectHarness, node: str, proxy: FaultProxy, cluster: Cluster
) -> None:
    proxy.fail("PATCH", "/status", kind)
    (outcome,) = await harness.carry_out(batch(9))
    assert isinstance(outcome, DesiredStateApplied)
    assert proxy.count("PATCH", "/status") == patches
    assert allocatable(cluster) == "9"


async def test_drift_is_rewritten_and_our_own_write_is_no_drift(
    harness: EffectHarness, node: str, cluster: Cluster, proxy: FaultProxy
) -> None:
    await harness.carry_out(batch(4))
    await harness.observe("nodes", NODE)  # our own write
    assert await harness.run_due() == []
    amounts = {"kubernetes.io/batch-cpu": "1"}
    cluster.api.call("PATCH", f"{NODE_PATH}/status", {"status": {"allocatable": amounts}})
    await harness.observe("nodes", NODE)
    (again,) = await harness.run_due()
    assert isinstance(again, DesiredStateApplied)
    assert allocatable(cluster) == "4"
    assert proxy.count("PATCH", "/status") == 2


# -- custom resources


def node_metric(name: str, interval: int | None) -> ObjectDesired:
    """Returns the intent that wants a NodeMetric with this report interval in seconds; None wants it deleted."""
    spec: dict[str, Any] = {"metricCollectPolicy": {"reportIntervalSeconds": interval}}
    body = {"metadata": {"labels": {"team": "a"}}, "spec": spec}
    return ObjectDesired(resource=METRICS, name=name, body=body if interval else None)


def found(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.api.call("GET", f"{METRICS_PATH}/{name}")


def interval_of(cluster: Cluster, name: str) -> int:
    interval: int = found(cluster, name)["spec"]["metricCollectPolicy"]["reportIntervalSeconds"]
    return interval


async def gone(harness: EffectHarness, name: str) -> bool:
    return await harness.api.find(RESOURCES[METRICS], name) is None


async def test_a_custom_resource_is_created_updated_and_deleted(harness: EffectHarness, cluster: Cluster) -> None:
    (created,) = await harness.carry_out(node_metric("desired-a", 10))
    assert created == DesiredStateApplied(resource=METRICS, name="desired-a", fields="")
    assert interval_of(cluster, "desired-a") == 10
    await harness.observe(METRICS, "desired-a")
    (updated,) = await harness.carry_out(node_metric("desired-a", 20))
    assert isinstance(updated, DesiredStateApplied)
    assert interval_of(cluster, "desired-a") == 20
    await harness.observe(METRICS, "desired-a")
    (deleted,) = await harness.carry_out(node_metric("desired-a", None))
    assert isinstance(deleted, DesiredStateApplied)
    assert await gone(harness, "desired-a")
    (again,) = await harness.carry_out(node_metric("desired-a", None))
    assert isinstance(again, DesiredStateApplied)  # it does not exist, as desired


async def test_an_update_removes_our_former_fields_and_keeps_those_of_other_clients(
    harness: EffectHarness, cluster: Cluster
) -> None:
    await harness.carry_out(node_metric("desired-b", 10))
    path = f"{METRICS_PATH}/desired-b"
    cluster.api.call("PATCH", path, {"metadata": {"annotations": {"someone": "else"}}})
    cluster.api.call("PATCH", f"{path}/status", {"status": {"updateTime": "2026-01-01T00:00:00Z"}})
    spec: dict[str, Any] = node_metric("desired-b", 10).body["spec"]  # type: ignore[index]
    (outcome,) = await harness.carry_out(ObjectDesired(resource=METRICS, name="desired-b", body={"spec": spec}))
    assert isinstance(outcome, DesiredStateApplied)
    now = found(cluster, "desired-b")
    assert "team" not in now["metadata"].get("labels", {})
    assert now["metadata"]["annotations"]["someone"] == "else"
    assert now["status"]["updateTime"] == "2026-01-01T00:00:00Z"
    cluster.api.call("DELETE", path)


async def test_after_a_conflict_a_custom_resource_is_applied_again(
    harness: EffectHarness, cluster: Cluster, proxy: FaultProxy
) -> None:
    await harness.carry_out(node_metric("desired-c", 10))
    path = f"{METRICS_PATH}/desired-c"
    cluster.api.call("PATCH", path, {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 90}}})
    (outcome,) = await harness.carry_out(node_metric("desired-c", 20))
    assert isinstance(outcome, DesiredStateApplied)
    assert interval_of(cluster, "desired-c") == 20
    assert proxy.count("PATCH", "desired-c") == 3  # created, refused with 409, written
    cluster.api.call("DELETE", path)


async def test_a_custom_resource_deleted_meanwhile_is_created_again(harness: EffectHarness, cluster: Cluster) -> None:
    await harness.carry_out(node_metric("desired-d", 10))
    cluster.api.call("DELETE", f"{METRICS_PATH}/desired-d")
    (outcome,) = await harness.carry_out(node_metric("desired-d", 20))
    assert isinstance(outcome, DesiredStateApplied)
    assert interval_of(cluster, "desired-d") == 20
    cluster.api.call("DELETE", f"{METRICS_PATH}/desired-d")


async def test_another_shard_takes_an_object_over_without_a_deletion_and_its_values_are_kept(
    harness: EffectHarness, cluster: Cluster, proxy: FaultProxy
) -> None:
    """Of two shards the one that desired last counts, also once somebody changes the object."""
    path = f"{METRICS_PATH}/desired-shards"
    await harness.carry_out(node_metric("desired-shards", 10), context="metrics-0")
    uid = found(cluster, "desired-shards")["metadata"]["uid"]
    await harness.observe(METRICS, "desired-shards")
    assert await harness.carry_out(node_metric("desired-shards", 20), context="metrics-1")
    await harness.observe(METRICS, "desired-shards")
    assert await harness.run_due() == []
    assert not harness.state.intents.outranked
    cluster.api.call("PATCH", path, {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 90}}})
    await harness.observe(METRICS, "desired-shards")

    async def rewritten() -> int | None:
        await harness.run_due()
        return interval_of(cluster, "desired-shards")

    await until(rewritten, holds=lambda interval_s: interval_s == 20)
    assert [(cause.context, cause.seq) for cause in harness.state.intents.applied] == [("metrics-1", 1)]
    assert found(cluster, "desired-shards")["metadata"]["uid"] == uid
    assert proxy.count("DELETE", "desired-shards") == 0
    cluster.api.call("DELETE", path)


async def test_an_apply_in_a_terminating_namespace_is_rejected(
    harness: EffectHarness, cluster: Cluster, namespace: str, make_pod: MakePod
) -> None:
    make_pod("keeps-it", metadata={"finalizers": ["example.com/stay"]})
    cluster.api.call("DELETE", f"/api/v1/namespaces/{namespace}")
    body = {"spec": {"max": {"cpu": "1"}}}
    (outcome,) = await harness.carry_out(ObjectDesired(resource=QUOTAS, name=f"{namespace}/q", body=body))
    path = f"/api/v1/namespaces/{namespace}/pods/keeps-it"
    cluster.api.call("PATCH", path, {"metadata": {"finalizers": None}})
    assert isinstance(outcome, DesiredStateRejected)
    assert "being terminated" in outcome.reason


@pytest.mark.parametrize("kind", ["lose", "swallow", "hang"])
async def test_after_a_lost_response_an_apply_is_repeated(
    kind: str, harness: EffectHarness, proxy: FaultProxy, cluster: Cluster
) -> None:
    name = f"desired-apply-{kind}"
    proxy.fail("PATCH", name, kind)
    (outcome,) = await harness.carry_out(node_metric(name, 10))
    assert isinstance(outcome, DesiredStateApplied)
    assert interval_of(cluster, name) == 10
    cluster.api.call("DELETE", f"{METRICS_PATH}/{name}")


@pytest.mark.parametrize("kind", ["lose", "swallow", "hang"])
async def test_after_a_lost_response_a_deletion_is_read_back(
    kind: str, harness: EffectHarness, proxy: FaultProxy, cluster: Cluster
) -> None:
    name = f"desired-{kind}"
    await harness.carry_out(node_metric(name, 10))
    proxy.fail("DELETE", name, kind)
    (outcome,) = await harness.carry_out(node_metric(name, None))
    assert isinstance(outcome, DesiredStateApplied)
    assert await gone(harness, name)


async def test_a_deletion_also_deletes_a_recreated_object(harness: EffectHarness, cluster: Cluster) -> None:
    await harness.carry_out(node_metric("desired-e", 10))
    await harness.observe(METRICS, "desired-e")
    cluster.api.call("DELETE", f"{METRICS_PATH}/desired-e")
    await harness.carry_out(
        node_metric("desired-e", 30)
    )  # created again: the observed uid is that of the former object
    (outcome,) = await harness.carry_out(node_metric("desired-e", None))
    assert isinstance(outcome, DesiredStateApplied)
    assert await gone(harness, "desired-e")


async def test_a_refused_deletion_of_the_object_that_was_meant_is_repeated(
    harness: EffectHarness, proxy: FaultProxy, cluster: Cluster
) -> None:
    """409 does not say that the name belongs to another object: a webhook may have answered so."""
    await harness.carry_out(node_metric("desired-f", 10))
    uid = found(cluster, "desired-f")["metadata"]["uid"]
    proxy.fail("DELETE", "desired-f", status=409)
    (outcome,) = await harness.carry_out(ObjectDesired(resource=METRICS, name="desired-f", body=None, uid=uid))
    assert isinstance(outcome, DesiredStateApplied)
    assert await gone(harness, "desired-f")


async def test_a_deletion_of_one_object_spares_another_of_its_name(harness: EffectHarness, cluster: Cluster) -> None:
    await harness.carry_out(node_metric("desired-g", 10))
    former = ObjectDesired(resource=METRICS, name="desired-g", body=None, uid="that-of-a-former-object")
    (outcome,) = await harness.carry_out(former)
    assert isinstance(outcome, DesiredStateApplied)
    assert interval_of(cluster, "desired-g") == 10
    cluster.api.call("DELETE", f"{METRICS_PATH}/desired-g")


# -- conditions and Events of unschedulable pods


def condition(pod: dict[str, Any]) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = pod["status"].get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == "PodScheduled"), {})


def path_of(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


async def events(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cluster.api.call("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
    return [item for item in items if item["reason"] == "FailedScheduling"]


async def test_an_unschedulable_pod_has_a_condition_and_one_event_with_a_count(
    harness: EffectHarness, make_pod: MakePod, cluster: Cluster, namespace: str
) -> None:
    pod = make_pod("web", schedulerName="koord-scheduler")
    await harness.observe("pods", f"{namespace}/web")
    (outcome,) = await harness.carry_out(unschedulable(pod, "0/1 nodes are available: 1 Insufficient cpu."))
    assert outcome == DesiredStateApplied(resource="pods", name=f"{namespace}/web", fields="PodScheduled")
    first = condition(cluster.api.call("GET", path_of(pod)))
    assert (first["status"], first["reason"]) == ("False", "Unschedulable")
    assert first["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    await harness.observe("pods", f"{namespace}/web")
    await asyncio.sleep(1.1)  # times in the API are whole seconds
    await harness.carry_out(unschedulable(pod, "0/2 nodes are available: 2 Insufficient cpu.", attempt=5))
    second = condition(cluster.api.call("GET", path_of(pod)))
    assert second["message"] == "0/2 nodes are available: 2 Insufficient cpu."
    assert second["lastTransitionTime"] == first["lastTransitionTime"]  # the status has been False all the time
    (event,) = await events(cluster, namespace)
    assert event["reportingComponent"] == "koordstream/koord-scheduler"
    assert (event["count"], event["type"], event["involvedObject"]["uid"]) == (5, "Warning", pod["metadata"]["uid"])
    assert event["message"] == second["message"]
    assert event["firstTimestamp"] < event["lastTimestamp"]
    await harness.carry_out(unschedulable(pod, "0/2 nodes match", code="NodeAffinity"))
    assert len(await events(cluster, namespace)) == 2


async def test_kubectl_describe_shows_why_a_pod_waits(
    harness: EffectHarness, make_pod: MakePod, cluster: Cluster, namespace: str
) -> None:
    pod = make_pod("web")
    await harness.observe("pods", f"{namespace}/web")
    await harness.carry_out(unschedulable(pod, "0/7 nodes are available: 7 node is hot."))
    condition = cluster.kubectl("describe", "pod", "web", "-n", namespace)
    assert "FailedScheduling" in condition
    assert "0/7 nodes are available: 7 node is hot." in condition
    assert "koordstream/default-scheduler" in condition


async def test_a_condition_for_another_uid_is_not_written(
    harness: EffectHarness, make_pod: MakePod, cluster: Cluster, namespace: str
) -> None:
    first = make_pod("web")
    await harness.observe("pods", f"{namespace}/web")
    cluster.api.call("DELETE", path_of(first) + "?gracePeriodSeconds=0")
    second = make_pod("web")
    (outcome,) = await harness.carry_out(unschedulable(first))
    assert isinstance(outcome, DesiredStateSuperseded)
    assert condition(cluster.api.call("GET", path_of(second))) == {}


async def test_a_condition_of_a_deleted_pod_is_superseded(
    harness: EffectHarness, make_pod: MakePod, cluster: Cluster, namespace: str
) -> None:
    pod = make_pod("web")
    await harness.observe("pods", f"{namespace}/web")
    cluster.api.call("DELETE", path_of(pod) + "?gracePeriodSeconds=0")
    (outcome,) = await harness.carry_out(unschedulable(pod))
    assert isinstance(outcome, DesiredStateSuperseded)


async def test_an_event_that_cannot_be_recorded_does_not_fail_the_condition(
    harness: EffectHarness, make_pod: MakePod, cluster: Cluster, namespace: str, proxy: FaultProxy
) -> None:
    pod = make_pod("web")
    await harness.observe("pods", f"{namespace}/web")
    proxy.fail("POST", "/events", status=403)
    outcomes: list[Event] = await harness.carry_out(unschedulable(pod))
    assert [type(outcome) for outcome in outcomes] == [DesiredStateApplied]
    assert condition(cluster.api.call("GET", path_of(pod)))["status"] == "False"


@pytest.mark.parametrize(("kind", "patches"), [("lose", 1), ("hang", 2)])
async def test_after_a_lost_response_a_condition_is_read_back(
    kind: str, patches: int, harness: EffectHarness, make_pod: MakePod, namespace: str, proxy: FaultProxy
) -> None:
    pod = make_pod("web")
    await harness.observe("pods", f"{namespace}/web")
    proxy.fail("PATCH", "/status", kind)
    (outcome,) = await harness.carry_out(unschedulable(pod))
    assert isinstance(outcome, DesiredStateApplied)
    assert proxy.count("PATCH", "/status") == patches


async def test_the_event_about_a_rejected_config_map_is_one_object_with_the_newest_reason(
    harness: EffectHarness, cluster: Cluster, namespace: str
) -> None:
    for now_s, reason in enumerate(("a first fault", "another one")):
        rejected = ConfigRejected(source=f"ConfigMap {namespace}/slo", digest=reason, path="", reason=reason)
        (draft,) = rejection_events([Draft(rejected)], uid="u1", component="koordstream/test", now_ns=now_s * SECOND)
        (outcome,) = await harness.carry_out(draft.event)
        assert isinstance(outcome, DesiredStateApplied)
    (event,) = cluster.api.call("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
    assert event["message"].endswith("another one")
    assert (event["type"], event["reason"], event["involvedObject"]["uid"]) == ("Warning", "ConfigRejected", "u1")


async def test_reports_that_are_ignored_are_one_event_on_the_node_until_it_is_gone(
    harness: EffectHarness, node: str, cluster: Cluster
) -> None:
    slo = SloCluster()
    slo.node(NODE)
    uid = cluster.api.call("GET", NODE_PATH)["metadata"]["uid"]
    slo.state.nodes[NODE] = replace(slo.state.nodes[NODE], metadata=Metadata(name=NODE, uid=uid))
    for at_s, used in ((60, -1000), (120, 1000), (180, 10**9)):
        slo.report(at_s, {"web": (used, 1)}, node=NODE)
        (intent,) = (
            event for event in slo.decide(at_s) if isinstance(event, ObjectDesired) and event.resource == "events"
        )
        (outcome,) = await harness.carry_out(intent, context="slo")
        assert isinstance(outcome, DesiredStateApplied)
    described = cluster.kubectl("describe", "node", NODE)
    assert described.count("UsageReports") == 1
    assert "metrics: cpu is 1M, over 2 times the node's capacity of 100" in described
    slo.append("cluster", NodeDeleted(NODE, uid))
    (intent,) = (event for event in slo.decide(240) if isinstance(event, ObjectDesired) and event.resource == "events")
    (outcome,) = await harness.carry_out(intent, context="slo")
    assert isinstance(outcome, DesiredStateApplied)
    assert "UsageReports" not in cluster.kubectl("describe", "node", NODE)
