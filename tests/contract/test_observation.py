"""Observations of objects that are created, changed and deleted: the same from the gateway and the simulator."""

from typing import Any

import pytest

from shared.events.cluster import (
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from tests.contract.scenario import ClientRefused, Scenario

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESERVATION = "scheduling.koordinator.sh/v1alpha1"


async def test_a_pod_is_observed_with_the_servers_defaults(scenario: Scenario) -> None:
    uid = await scenario.create_pod(tolerations=[{"key": "mine", "operator": "Exists"}])
    (event,) = await scenario.log.all(PodObserved, scenario.key("web"))
    pod = event.object
    assert (pod.metadata.key, pod.metadata.uid) == (scenario.key("web"), uid)
    assert (pod.spec.scheduler_name, pod.spec.priority, pod.spec.preemption_policy) == (
        "koord-scheduler",
        0,
        "PreemptLowerPriority",
    )
    assert [one.key for one in pod.spec.tolerations] == [
        "mine",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert (pod.status.phase, pod.status.qos_class, pod.status.conditions) == ("Pending", "Burstable", ())
    assert pod.spec.containers[0].resources is not None
    assert pod.spec.containers[0].resources.requests == {"cpu": "500m", "memory": "512Mi"}


async def test_only_a_change_of_a_kept_field_is_recorded(scenario: Scenario) -> None:
    await scenario.create_pod()
    reference = scenario.reference("Pod", "web")
    await scenario.client.patch(reference, {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}})
    await scenario.client.patch(reference, {"metadata": {"labels": {"koordinator.sh/qosClass": "BE"}}})
    event = await scenario.log.wait_for(
        PodObserved, scenario.key("web"), lambda event: bool(event.object.metadata.labels)
    )
    assert event.object.metadata.labels == {"koordinator.sh/qosClass": "BE"}
    assert len(await scenario.log.all(PodObserved, scenario.key("web"))) == 2


async def test_a_deleted_pod_is_recorded_and_its_successor_has_another_uid(scenario: Scenario) -> None:
    first = await scenario.create_pod()
    await scenario.client.delete(scenario.reference("Pod", "web"))
    gone = await scenario.log.wait_for(PodDeleted, scenario.key("web"))
    assert gone.pod_uid == first
    second = await scenario.create_pod()
    assert second != first


async def test_a_heartbeat_is_not_recorded_and_a_taint_is(scenario: Scenario) -> None:
    name = await scenario.create_node("n")
    before = len(await scenario.log.all(NodeObserved, name))
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    for second in range(3):
        beat = condition | {"lastHeartbeatTime": f"2026-01-01T00:00:0{second}Z"}
        await scenario.client.patch(scenario.node("n"), {"status": {"conditions": [beat]}}, "status")
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    await scenario.client.patch(scenario.node("n"), {"spec": {"taints": [taint]}})
    tainted = await scenario.log.wait_for(
        NodeObserved, name, lambda event: "team" in [one.key for one in event.object.spec.taints]
    )
    assert [(one.value, one.effect) for one in tainted.object.spec.taints] == [("a", "NoSchedule")]
    since = len(await scenario.log.all(NodeObserved, name)) - before
    assert since <= 2  # the transition time that the first beat set, once, and the taint
    await scenario.client.delete(scenario.node("n"))
    await scenario.log.wait_for(NodeDeleted, name)


async def test_a_node_is_observed_with_its_allocatable(scenario: Scenario) -> None:
    name = await scenario.create_node("n")
    event = (await scenario.log.all(NodeObserved, name))[-1]
    assert event.object.status.allocatable == {"cpu": "32", "memory": "256Gi", "pods": "110"}
    assert [(one.type, one.status) for one in event.object.status.conditions] == [("Ready", "True")]
    batch = {"status": {"allocatable": {"kubernetes.io/batch-cpu": "1000"}}}
    await scenario.client.patch(scenario.node("n"), batch, "status")
    changed = await scenario.log.wait_for(
        NodeObserved, name, lambda event: "kubernetes.io/batch-cpu" in (event.object.status.allocatable or {})
    )
    assert (changed.object.status.allocatable or {})["cpu"] == "32"
    await scenario.client.delete(scenario.node("n"))


async def test_a_node_metric_is_observed_as_reported(scenario: Scenario) -> None:
    name = scenario.name("metric")
    reference = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}}
    await scenario.client.create(reference | {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}}})
    usage = {"resources": {"cpu": "1500m", "memory": "2Gi"}}
    status = {
        "updateTime": "2026-11-21T08:00:00Z",
        "nodeMetric": {
            "nodeUsage": usage,
            "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"p99": usage}}],
        },
        "podsMetric": [{"name": "a", "namespace": "b", "podUsage": usage, "priority": "koord-prod", "qos": "LS"}],
    }
    await scenario.client.patch(reference, {"status": status}, "status")
    event = await scenario.log.wait_for(NodeMetricObserved, name, lambda event: bool(event.object.status.update_time))
    report = event.object.status
    assert report.update_time == "2026-11-21T08:00:00Z"
    assert report.node_metric is not None
    assert report.node_metric.node_usage is not None
    assert report.node_metric.node_usage.resources == usage["resources"]
    assert report.pods_metric[0].priority == "koord-prod"
    assert event.object.spec.metric_collect_policy is not None
    assert event.object.spec.metric_collect_policy.report_interval_seconds == 60
    await scenario.client.delete(reference)
    await scenario.log.wait_for(NodeMetricDeleted, name)


async def test_a_custom_resource_and_a_config_map_are_observed_whole(scenario: Scenario) -> None:
    slot = {"apiVersion": RESERVATION, "kind": "Reservation", "metadata": {"name": scenario.name("slot")}}
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    await scenario.client.create(
        slot | {"spec": {"ttl": "1h", "owners": owners, "template": {"spec": {"containers": []}}}}
    )
    seen = await scenario.log.wait_for(ObjectObserved, scenario.name("slot"))
    assert seen.resource == "reservations.scheduling.koordinator.sh"
    assert (seen.object["spec"]["ttl"], seen.object["spec"]["owners"]) == ("1h", owners)
    assert "resourceVersion" not in seen.object["metadata"]
    await scenario.client.delete(slot)
    await scenario.log.wait_for(ObjectDeleted, scenario.name("slot"))
    config = scenario.reference("ConfigMap", "config")
    await scenario.client.create(config | {"data": {"a": "1"}})
    await scenario.client.patch(config, {"data": {"a": "2"}})
    changed = await scenario.log.wait_for(
        ObjectObserved, scenario.key("config"), lambda event: event.object["data"] == {"a": "2"}
    )
    assert changed.resource == "configmaps"


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({"spec": {"containers": []}}, 422, "spec.containers"),
        ({"spec": {"containers": [{"name": "c"}]}}, 422, "image"),
        ({"spec": {"containers": [{"name": "c", "image": "a"}], "priorityClassName": "no-such"}}, 403, "no-such"),
    ],
)
async def test_a_bad_pod_is_refused(scenario: Scenario, change: dict[str, Any], code: int, word: str) -> None:
    with pytest.raises(ClientRefused) as refused:
        await scenario.client.create(scenario.pod() | change)
    assert refused.value.code == code
    assert word in str(refused.value)


async def test_a_name_is_used_once(scenario: Scenario) -> None:
    await scenario.create_pod()
    with pytest.raises(ClientRefused) as refused:
        await scenario.client.create(scenario.pod())
    assert refused.value.code == 409
