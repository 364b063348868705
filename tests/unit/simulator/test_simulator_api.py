"""The simulated API: stored objects, errors, and the events of both."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from services.simulator.service import change
from shared.events.cluster import NodeMetricObserved, NodeObserved, ObjectObserved, PodDeleted, PodObserved
from tests.unit.simulator.simulated_world import World, node, pod


def test_a_pod_gets_the_defaults_of_the_api_server() -> None:
    world = World()
    created = world.request("create", pod())
    assert created["spec"]["priority"] == 0
    assert created["spec"]["tolerations"][0] == {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    assert created["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert created["metadata"]["creationTimestamp"] == "2027-01-15T08:00:00Z"
    stored = world.state.pods()["default/web"]
    assert stored.spec.scheduler_name == "default-scheduler"
    assert not stored.status.conditions
    assert [event.pod for event in world.events(PodObserved)] == ["default/web"]


def test_the_priority_follows_from_the_priority_class() -> None:
    world = World()
    created = world.request("create", pod(priorityClassName="koord-batch"))
    assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (5000, "PreemptLowerPriority")


def test_a_limit_without_a_request_is_the_request() -> None:
    world = World()
    body = pod()
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 2, "memory": "1Gi"}}  # yaml gives a number
    created = world.request("create", body)
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
    assert created["status"]["qosClass"] == "Guaranteed"


def test_status_uid_and_times_of_a_client_are_ignored() -> None:
    world = World()
    body = pod() | {"status": {"phase": "Running"}}
    body["metadata"] |= {"uid": "mine", "deletionTimestamp": "2020-01-01T00:00:00Z"}
    created = world.request("create", body)
    assert created["status"]["phase"] == "Pending"
    assert created["metadata"]["uid"] != "mine"
    assert "deletionTimestamp" not in created["metadata"]


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"metadata": {"name": "", "namespace": "default"}}, 422, "metadata.name"),
        ({"metadata": {"name": "Web", "namespace": "default"}}, 422, "metadata.name"),
        ({"metadata": {"name": "web", "namespace": "nowhere"}}, 404, 'namespaces "nowhere"'),
        ({"spec": {"containers": []}}, 422, "spec.containers: Required value"),
        ({"spec": {"containers": [{"name": "c"}]}}, 422, "spec.containers[0].image"),
        ({"spec": {"containers": [{"image": "a"}]}}, 422, "spec.containers[0].name"),
        (
            {"spec": {"containers": [{"name": "c", "image": "a", "resources": {"requests": {"cpu": "much"}}}]}},
            422,
            "spec.containers[0].resources.requests[cpu]",
        ),
        (
            {
                "spec": {
                    "containers": [
                        {"name": "c", "image": "a", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
                    ]
                }
            },
            422,
            "spec.containers[0].resources.requests: Invalid value",
        ),
        ({"spec": pod()["spec"] | {"priorityClassName": "none"}}, 403, "spec.priorityClassName"),
        ({"spec": pod()["spec"] | {"priority": 7}}, 403, "spec.priority"),
        ({"spec": {"containers": "c"}}, 400, "$.spec.containers"),
        ({"kind": ""}, 400, "kind: Required value"),
    ],
)
def test_an_invalid_object_is_rejected_with_the_field(change: dict[str, Any], code: int, field: str) -> None:
    world = World()
    before = world.state.encode()
    answer = world.request("create", pod() | change)
    assert (answer["kind"], answer["code"]) == ("Status", code)
    assert field in answer["message"]
    assert world.state.encode() == before


def test_the_requests_of_one_step_see_each_other() -> None:
    world = World()
    answer = world.request("create", {"kind": "List", "items": [pod("a"), pod("a"), pod("b", "x")]})
    assert [item.get("code") for item in answer["items"]] == [None, 409, 404]
    assert answer["items"][0]["metadata"]["uid"] == world.state.pods()["default/a"].metadata.uid


def test_uids_are_derived_from_the_seed_and_unique() -> None:
    def uids(seed: int) -> list[str]:
        world = World(seed=seed)
        made = [world.request("create", pod("a"))]
        world.request("delete", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}})
        made.append(world.request("create", pod("a")))
        return [one["metadata"]["uid"] for one in made]

    assert uids(1) == uids(1)
    assert len({*uids(1), *uids(2)}) == 4


def test_a_generated_name_ends_in_five_letters() -> None:
    world = World()
    body = pod() | {"metadata": {"generateName": "web-"}}
    names = [world.request("create", body)["metadata"]["name"] for _ in range(3)]
    assert len(set(names)) == 3
    assert all(name.startswith("web-") and len(name) == 9 for name in names)


def test_a_node_is_ready_and_all_of_it_is_allocatable() -> None:
    world = World()
    created = world.request("create", node())
    assert created["status"]["allocatable"] == created["status"]["capacity"]
    assert created["status"]["conditions"] == [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]


def test_a_heartbeat_is_no_event_and_a_taint_is_one() -> None:
    world = World()
    world.create(node())
    place = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    beat = {
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "x"}]
        }
    }
    world.request("patch", place | {"patch": beat, "subresource": "status"})
    assert len(world.events(NodeObserved)) == 1
    world.request("patch", place | {"patch": {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}})
    assert world.events(NodeObserved)[-1].object.spec.taints[0].key == "a"


def test_a_plain_patch_leaves_the_status_alone_and_a_status_patch_everything_else() -> None:
    world = World()
    world.create(node())
    place = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    both = {"metadata": {"labels": {"a": "b"}}, "status": {"capacity": {"cpu": "1"}}}
    plain = world.request("patch", place | {"patch": both})
    assert (plain["metadata"]["labels"], plain["status"]["capacity"]["cpu"]) == ({"a": "b"}, "32")
    status = world.request(
        "patch", place | {"patch": both | {"metadata": {"labels": {"c": "d"}}}, "subresource": "status"}
    )
    assert (status["metadata"]["labels"], status["status"]["capacity"]["cpu"]) == ({"a": "b"}, "1")


def test_a_pods_spec_cannot_be_patched_but_its_gates_can_be_removed() -> None:
    world = World()
    world.create(pod(schedulingGates=[{"name": "wait"}]))
    place = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}}
    refused = world.request("patch", place | {"patch": {"spec": {"nodeName": "n1"}}})
    assert refused["code"] == 422
    assert "spec: Forbidden" in refused["message"]
    opened = world.request("patch", place | {"patch": {"spec": {"schedulingGates": None}}})
    assert "schedulingGates" not in opened["spec"]


def test_a_delete_with_another_uid_is_a_conflict() -> None:
    world = World()
    world.create(pod())
    place = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default", "uid": "another"}}
    assert world.request("delete", place)["code"] == 409
    assert "default/web" in world.state.pods()


def test_a_deleted_namespace_takes_its_objects_along() -> None:
    world = World()
    world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}, pod("a", "team"), pod("b"))
    world.request("delete", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    assert list(world.state.pods()) == ["default/b"]
    assert [event.pod for event in world.events(PodDeleted)] == ["team/a"]


def test_a_node_metric_starts_without_status_and_accepts_it_by_the_subresource() -> None:
    world = World()
    place = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "n1"}}
    status = {"updateTime": "2027-01-15T08:00:00Z", "nodeMetric": {"nodeUsage": {"resources": {"cpu": 2}}}}
    world.create(place | {"status": status})
    world.request("patch", place | {"patch": {"status": status}, "subresource": "status"})
    first, second = world.events(NodeMetricObserved)
    assert first.object.status.update_time is None
    assert second.object.status.node_metric.node_usage.resources == {"cpu": "2"}


def test_any_custom_resource_can_be_stored() -> None:
    world = World()
    world.create({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}})
    event = world.events(ObjectObserved)[-1]
    assert (event.resource, event.name, event.object["spec"]) == ("widgets.example.org", "w", {"size": 3})


def test_a_replica_that_does_not_lead_yet_answers_what_to_do() -> None:
    """`koord dev apply` in the first seconds of `koord up` printed that a replica does not lead."""
    runtime: Any = SimpleNamespace(writer=SimpleNamespace(epoch=0))
    queue: Any = None
    answer = msgspec.json.decode(asyncio.run(change(queue, "create", runtime, b"{}")))
    assert (answer["code"], answer["reason"]) == (503, "ServiceUnavailable")
    assert answer["message"].endswith("it starts, or another one leads; try again in some seconds")
