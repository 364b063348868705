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
from tests.contract.driver import ClientRefused, World

pytestmark = pytest.mark.asyncio(loop_scope="session")

RESERVATION = "scheduling.koordinator.sh/v1alpha1"


async def test_a_pod_is_observed_with_the_servers_defaults(world: World) -> None:
    uid = await world.create_pod(tolerations=[{"key": "mine", "operator": "Exists"}])
    (event,) = await world.log.all(PodObserved, world.key("web"))
    pod = event.object
    assert (pod.metadata.key, pod.metadata.uid) == (world.key("web"), uid)
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


async def test_only_a_change_of_a_kept_field_is_recorded(world: World) -> None:
    await world.create_pod()
    place = world.place("Pod", "web")
    await world.client.patch(place, {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}})
    await world.client.patch(place, {"metadata": {"labels": {"koordinator.sh/qosClass": "BE"}}})
    event = await world.log.wait_for(PodObserved, world.key("web"), lambda event: bool(event.object.metadata.labels))
    assert event.object.metadata.labels == {"koordinator.sh/qosClass": "BE"}
    assert len(await world.log.all(PodObserved, world.key("web"))) == 2


async def test_a_deleted_pod_is_recorded_and_its_successor_has_another_uid(world: World) -> None:
    first = await world.create_pod()
    await world.client.delete(world.place("Pod", "web"))
    gone = await world.log.wait_for(PodDeleted, world.key("web"))
    assert gone.pod_uid == first
    second = await world.create_pod()
    assert second != first


async def test_a_heartbeat_is_not_recorded_and_a_taint_is(world: World) -> None:
    name = await world.create_node("n")
    before = len(await world.log.all(NodeObserved, name))
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    for second in range(3):
        beat = condition | {"lastHeartbeatTime": f"2026-01-01T00:00:0{second}Z"}
        await world.client.patch(world.node("n"), {"status": {"conditions": [beat]}}, "status")
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    await world.client.patch(world.node("n"), {"spec": {"taints": [taint]}})
    tainted = await world.log.wait_for(
        NodeObserved, name, lambda event: "team" in [one.key for one in event.object.spec.taints]
    )
    assert [(one.value, one.effect) for one in tainted.object.spec.taints] == [("a", "NoSchedule")]
    since = len(await world.log.all(NodeObserved, name)) - before
    assert since <= 2  # the transition time that the first beat set, once, and the taint
    await world.client.delete(world.node("n"))
    await world.log.wait_for(NodeDeleted, name)


async def test_a_node_is_observed_with_its_allocatable(world: World) -> None:
    name = await world.create_node("n")
    event = (await world.log.all(NodeObserved, name))[-1]
    assert event.object.status.allocatable == {"cpu": "32", "memory": "256Gi", "pods": "110"}
    assert [(one.type, one.status) for one in event.object.status.conditions] == [("Ready", "True")]
    batch = {"status": {"allocatable": {"kubernetes.io/batch-cpu": "1000"}}}
    await world.client.patch(world.node("n"), batch, "status")
    changed = await world.log.wait_for(
        NodeObserved, name, lambda event: "kubernetes.io/batch-cpu" in (event.object.status.allocatable or {})
    )
    assert (changed.object.status.allocatable or {})["cpu"] == "32"
    await world.client.delete(world.node("n"))


async def test_a_node_metric_is_observed_as_reported(world: World) -> None:
    name = world.name("metric")
    place = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}}
    await world.client.create(place | {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}}})
    usage = {"resources": {"cpu": "1500m", "memory": "2Gi"}}
    status = {
        "updateTime": "2026-11-21T08:00:00Z",
        "nodeMetric": {
            "nodeUsage": usage,
            "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"p99": usage}}],
        },
        "podsMetric": [{"name": "a", "namespace": "b", "podUsage": usage, "priority": "koord-prod", "qos": "LS"}],
    }
    await world.client.patch(place, {"status": status}, "status")
    event = await world.log.wait_for(NodeMetricObserved, name, lambda event: bool(event.object.status.update_time))
    report = event.object.status
    assert report.update_time == "2026-11-21T08:00:00Z"
    assert report.node_metric is not None
    assert report.node_metric.node_usage is not None
    assert report.node_metric.node_usage.resources == usage["resources"]
    assert report.pods_metric[0].priority == "koord-prod"
    assert event.object.spec.metric_collect_policy is not None
    assert event.object.spec.metric_collect_policy.report_interval_seconds == 60
    await world.client.delete(place)
    await world.log.wait_for(NodeMetricDeleted, name)


async def test_a_custom_resource_and_a_config_map_are_observed_whole(world: World) -> None:
    slot = {"apiVersion": RESERVATION, "kind": "Reservation", "metadata": {"name": world.name("slot")}}
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    await world.client.create(
        slot | {"spec": {"ttl": "1h", "owners": owners, "template": {"spec": {"containers": []}}}}
    )
    seen = await world.log.wait_for(ObjectObserved, world.name("slot"))
    assert seen.resource == "reservations.scheduling.koordinator.sh"
    assert (seen.object["spec"]["ttl"], seen.object["spec"]["owners"]) == ("1h", owners)
    assert "resourceVersion" not in seen.object["metadata"]
    await world.client.delete(slot)
    await world.log.wait_for(ObjectDeleted, world.name("slot"))
    config = world.place("ConfigMap", "config")
    await world.client.create(config | {"data": {"a": "1"}})
    await world.client.patch(config, {"data": {"a": "2"}})
    changed = await world.log.wait_for(
        ObjectObserved, world.key("config"), lambda event: event.object["data"] == {"a": "2"}
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
async def test_a_bad_pod_is_refused(world: World, change: dict[str, Any], code: int, word: str) -> None:
    with pytest.raises(ClientRefused) as refused:
        await world.client.create(world.pod() | change)
    assert refused.value.code == code
    assert word in str(refused.value)


async def test_a_name_is_used_once(world: World) -> None:
    await world.create_pod()
    with pytest.raises(ClientRefused) as refused:
        await world.client.create(world.pod())
    assert refused.value.code == 409
