"""Levels on a real API server: conditions, status, metadata and custom resources are as the newest intent says."""

import asyncio
from typing import Any

import pytest

from cli.dev.local_control_plane import Cluster
from services.gateway.effects.intents import ObjectRef
from services.gateway.kube_api.resources import RESOURCES
from shared.events import Event
from shared.events.cluster import (
    DesiredStateApplied,
    DesiredStateFailed,
    DesiredStateRejected,
    DesiredStateSuperseded,
    MissingPermission,
)
from shared.events.intents import FieldsDesired, ObjectDesired
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.conftest import MakePod
from tests.integration.gateway.effect_harness import EffectHarness, unschedulable
from tests.integration.gateway.fault_proxy import FaultProxy

NODE = "level-1"
NODE_PATH = f"/api/v1/nodes/{NODE}"
QUOTAS = "elasticquotas.scheduling.sigs.k8s.io"
RESERVATIONS = "reservations.scheduling.koordinator.sh"
RESERVATION_PATH = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


def batch(milli: int, **more: Any) -> FieldsDesired:
    amounts = {"kubernetes.io/batch-cpu": str(milli)}
    patch = {"status": {"capacity": amounts, "allocatable": amounts}}
    return FieldsDesired(resource="nodes", name=NODE, fields="batch", patch=patch, subresource="status", **more)


def labels(value: str | None, name: str = NODE) -> FieldsDesired:
    patch = {"metadata": {"labels": {"node.koordinator.sh/level": value}}}
    return FieldsDesired(resource="nodes", name=name, fields="labels", patch=patch)


def allocatable(cluster: Cluster) -> str:
    return str(cluster.api.call("GET", NODE_PATH)["status"]["allocatable"].get("kubernetes.io/batch-cpu"))


@pytest.fixture
async def node(stage: EffectHarness, kube_nodes: MakeNodes) -> str:
    kube_nodes(NODE)
    await stage.observe("nodes", NODE)
    return NODE


# -- fields of an object that exists


async def test_status_of_a_node_is_written_and_the_rest_left_alone(
    stage: EffectHarness, node: str, cluster: Cluster
) -> None:
    before = cluster.api.call("GET", NODE_PATH)
    (outcome,) = await stage.ask(batch(1500))
    assert outcome == DesiredStateApplied(resource="nodes", name=NODE, fields="batch")
    after = cluster.api.call("GET", NODE_PATH)
    assert after["status"]["allocatable"] == before["status"]["allocatable"] | {"kubernetes.io/batch-cpu": "1500"}
    assert "koordstream" in {entry["manager"] for entry in after["metadata"]["managedFields"]}


async def test_metadata_is_written_and_null_takes_away(stage: EffectHarness, node: str, cluster: Cluster) -> None:
    await stage.ask(labels("high"))
    assert cluster.api.call("GET", NODE_PATH)["metadata"]["labels"]["node.koordinator.sh/level"] == "high"
    await stage.ask(labels(None))
    assert "node.koordinator.sh/level" not in cluster.api.call("GET", NODE_PATH)["metadata"]["labels"]


async def test_of_several_levels_only_the_newest_is_written(
    stage: EffectHarness, node: str, cluster: Cluster, proxy: FaultProxy
) -> None:
    outcomes = await stage.ask(batch(1), batch(2), batch(3), labels("a"))
    assert [type(outcome) for outcome in outcomes].count(DesiredStateApplied) == 2
    assert proxy.count("PATCH", "/status") == 1
    assert allocatable(cluster) == "3"
    superseded = [
        record.event for record in stage.log.contexts["cluster"] if isinstance(record.event, DesiredStateSuperseded)
    ]
    assert len(superseded) == 2


async def test_a_write_on_an_object_that_others_changed_is_read_and_written_again(
    stage: EffectHarness, node: str, cluster: Cluster, proxy: FaultProxy
) -> None:
    """The version that the watch brought last is behind: the server says 409."""
    cluster.api.call("PATCH", NODE_PATH, {"metadata": {"labels": {"someone": "else"}}})
    (outcome,) = await stage.ask(labels("high"))
    assert isinstance(outcome, DesiredStateApplied)
    assert proxy.count("PATCH", NODE_PATH) == 2
    found = cluster.api.call("GET", NODE_PATH)["metadata"]["labels"]
    assert (found["someone"], found["node.koordinator.sh/level"]) == ("else", "high")


async def test_an_object_that_is_gone_is_rejected(stage: EffectHarness, node: str, cluster: Cluster) -> None:
    cluster.api.call("DELETE", NODE_PATH)
    (outcome,) = await stage.ask(batch(1))
    assert isinstance(outcome, DesiredStateRejected)


async def test_an_object_that_never_was_is_rejected(stage: EffectHarness) -> None:
    (outcome,) = await stage.ask(labels("x", name="no-such-node"))
    assert isinstance(outcome, DesiredStateRejected)
    assert "is gone" in outcome.reason


async def test_another_object_of_the_same_name_is_not_meant(stage: EffectHarness, node: str, cluster: Cluster) -> None:
    stage.state.known["nodes"].clear()  # not observed yet
    (outcome,) = await stage.ask(batch(1, uid="of-another"))
    assert isinstance(outcome, DesiredStateSuperseded)
    stage.echoes.deleted(ObjectRef("nodes", NODE))  # nor any version known
    (outcome,) = await stage.ask(batch(2, uid="of-another"))
    assert isinstance(outcome, DesiredStateSuperseded)
    assert allocatable(cluster) == "None"


async def test_what_the_server_calls_invalid_is_rejected(stage: EffectHarness, node: str) -> None:
    patch = {"metadata": {"labels": {"not a label": "x"}}}
    (outcome,) = await stage.ask(FieldsDesired(resource="nodes", name=NODE, fields="labels", patch=patch))
    assert isinstance(outcome, DesiredStateRejected)
    assert "422" in outcome.reason


async def test_a_resource_that_we_do_not_know_is_rejected(stage: EffectHarness) -> None:
    (outcome,) = await stage.ask(FieldsDesired(resource="widgets.example.com", name="w", fields="f", patch={}))
    assert isinstance(outcome, DesiredStateRejected)


async def test_without_the_permission_the_outcome_names_the_rule(stage: EffectHarness, cluster: Cluster) -> None:
    """Namespaces may be read, and k8s/rbac lets nobody patch them."""
    await stage.ask()
    level = FieldsDesired(resource="namespaces", name="default", fields="f", patch={"metadata": {"labels": {"x": "y"}}})
    stage.echoes._versions[ObjectRef("namespaces", "default")] = "1"  # as a watch would have brought it
    (outcome,) = await stage.ask(level)
    assert outcome == MissingPermission(name="default", rule="patch namespaces")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_server_is_asked_again(
    status: int, stage: EffectHarness, node: str, proxy: FaultProxy, cluster: Cluster
) -> None:
    proxy.fail("PATCH", "/status", status=status)
    (outcome,) = await stage.ask(batch(9))
    assert isinstance(outcome, DesiredStateApplied)
    assert allocatable(cluster) == "9"


async def test_a_server_that_stays_busy_ends_in_level_failed(
    stage: EffectHarness, node: str, proxy: FaultProxy
) -> None:
    proxy.fail("PATCH", "/status", status=503, times=-1)
    (outcome,) = await stage.ask(batch(9))
    assert isinstance(outcome, DesiredStateFailed)


@pytest.mark.parametrize(("kind", "patches"), [("lose", 1), ("swallow", 1), ("hang", 2)])
async def test_a_write_without_an_answer_is_read_back(
    kind: str, patches: int, stage: EffectHarness, node: str, proxy: FaultProxy, cluster: Cluster
) -> None:
    proxy.fail("PATCH", "/status", kind)
    (outcome,) = await stage.ask(batch(9))
    assert isinstance(outcome, DesiredStateApplied)
    assert proxy.count("PATCH", "/status") == patches
    assert allocatable(cluster) == "9"


async def test_what_another_hand_overwrites_is_written_again_and_our_own_echo_is_not(
    stage: EffectHarness, node: str, cluster: Cluster, proxy: FaultProxy
) -> None:
    await stage.ask(batch(4))
    await stage.observe("nodes", NODE)  # our own echo
    assert await stage.work() == []
    amounts = {"kubernetes.io/batch-cpu": "1"}
    cluster.api.call("PATCH", f"{NODE_PATH}/status", {"status": {"allocatable": amounts}})
    await stage.observe("nodes", NODE)
    (again,) = await stage.work()
    assert isinstance(again, DesiredStateApplied)
    assert allocatable(cluster) == "4"
    assert proxy.count("PATCH", "/status") == 2


# -- custom resources


def reservation(name: str, ttl: str | None) -> ObjectDesired:
    spec: dict[str, Any] = {"ttl": ttl, "owners": [{"object": {"name": "x"}}], "template": {"spec": {"containers": []}}}
    body = {"metadata": {"labels": {"team": "a"}}, "spec": spec}
    return ObjectDesired(resource=RESERVATIONS, name=name, body=body if ttl else None)


def found(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.api.call("GET", f"{RESERVATION_PATH}/{name}")


async def gone(stage: EffectHarness, name: str) -> bool:
    return await stage.api.find(RESOURCES[RESERVATIONS], name) is None


async def test_a_custom_resource_is_created_updated_and_deleted(stage: EffectHarness, cluster: Cluster) -> None:
    (created,) = await stage.ask(reservation("level-a", "1h"))
    assert created == DesiredStateApplied(resource=RESERVATIONS, name="level-a", fields="")
    assert found(cluster, "level-a")["spec"]["ttl"] == "1h"
    await stage.observe(RESERVATIONS, "level-a")
    (updated,) = await stage.ask(reservation("level-a", "2h"))
    assert isinstance(updated, DesiredStateApplied)
    assert found(cluster, "level-a")["spec"]["ttl"] == "2h"
    await stage.observe(RESERVATIONS, "level-a")
    (deleted,) = await stage.ask(reservation("level-a", None))
    assert isinstance(deleted, DesiredStateApplied)
    assert await gone(stage, "level-a")
    (again,) = await stage.ask(reservation("level-a", None))
    assert isinstance(again, DesiredStateApplied)  # it is not there, as it should be


async def test_an_update_takes_away_what_we_no_longer_say_and_leaves_what_others_say(
    stage: EffectHarness, cluster: Cluster
) -> None:
    await stage.ask(reservation("level-b", "1h"))
    path = f"{RESERVATION_PATH}/level-b"
    cluster.api.call("PATCH", path, {"metadata": {"annotations": {"someone": "else"}}})
    cluster.api.call("PATCH", f"{path}/status", {"status": {"phase": "Available"}})
    spec: dict[str, Any] = reservation("level-b", "1h").body["spec"]  # type: ignore[index]
    (outcome,) = await stage.ask(ObjectDesired(resource=RESERVATIONS, name="level-b", body={"spec": spec}))
    assert isinstance(outcome, DesiredStateApplied)
    now = found(cluster, "level-b")
    assert "team" not in now["metadata"].get("labels", {})
    assert now["metadata"]["annotations"]["someone"] == "else"
    assert now["status"]["phase"] == "Available"
    cluster.api.call("DELETE", path)


async def test_a_custom_resource_that_others_changed_meanwhile_is_written_again(
    stage: EffectHarness, cluster: Cluster, proxy: FaultProxy
) -> None:
    await stage.ask(reservation("level-c", "1h"))
    path = f"{RESERVATION_PATH}/level-c"
    cluster.api.call("PATCH", path, {"spec": {"ttl": "9h"}})
    (outcome,) = await stage.ask(reservation("level-c", "2h"))
    assert isinstance(outcome, DesiredStateApplied)
    assert found(cluster, "level-c")["spec"]["ttl"] == "2h"
    assert proxy.count("PATCH", "level-c") == 3  # created, refused with 409, written
    cluster.api.call("DELETE", path)


async def test_a_custom_resource_that_is_deleted_while_we_know_its_version_is_made_again(
    stage: EffectHarness, cluster: Cluster
) -> None:
    await stage.ask(reservation("level-d", "1h"))
    cluster.api.call("DELETE", f"{RESERVATION_PATH}/level-d")
    (outcome,) = await stage.ask(reservation("level-d", "2h"))
    assert isinstance(outcome, DesiredStateApplied)
    assert found(cluster, "level-d")["spec"]["ttl"] == "2h"
    cluster.api.call("DELETE", f"{RESERVATION_PATH}/level-d")


async def test_a_namespace_that_is_going_away_takes_nothing_new(
    stage: EffectHarness, cluster: Cluster, namespace: str, make_pod: MakePod
) -> None:
    make_pod("keeps-it", metadata={"finalizers": ["example.com/stay"]})
    cluster.api.call("DELETE", f"/api/v1/namespaces/{namespace}")
    body = {"spec": {"max": {"cpu": "1"}}}
    (outcome,) = await stage.ask(ObjectDesired(resource=QUOTAS, name=f"{namespace}/q", body=body))
    path = f"/api/v1/namespaces/{namespace}/pods/keeps-it"
    cluster.api.call("PATCH", path, {"metadata": {"finalizers": None}})
    assert isinstance(outcome, DesiredStateRejected)
    assert "being terminated" in outcome.reason


@pytest.mark.parametrize("kind", ["lose", "swallow", "hang"])
async def test_an_apply_without_an_answer_is_applied_again(
    kind: str, stage: EffectHarness, proxy: FaultProxy, cluster: Cluster
) -> None:
    name = f"level-apply-{kind}"
    proxy.fail("PATCH", name, kind)
    (outcome,) = await stage.ask(reservation(name, "1h"))
    assert isinstance(outcome, DesiredStateApplied)
    assert found(cluster, name)["spec"]["ttl"] == "1h"
    cluster.api.call("DELETE", f"{RESERVATION_PATH}/{name}")


@pytest.mark.parametrize("kind", ["lose", "swallow", "hang"])
async def test_a_deletion_without_an_answer_is_read_back(
    kind: str, stage: EffectHarness, proxy: FaultProxy, cluster: Cluster
) -> None:
    name = f"level-{kind}"
    await stage.ask(reservation(name, "1h"))
    proxy.fail("DELETE", name, kind)
    (outcome,) = await stage.ask(reservation(name, None))
    assert isinstance(outcome, DesiredStateApplied)
    assert await gone(stage, name)


async def test_another_object_under_the_name_must_not_exist_either(stage: EffectHarness, cluster: Cluster) -> None:
    await stage.ask(reservation("level-e", "1h"))
    await stage.observe(RESERVATIONS, "level-e")
    cluster.api.call("DELETE", f"{RESERVATION_PATH}/level-e")
    await stage.ask(reservation("level-e", "3h"))  # made anew: the uid that was observed is another's
    (outcome,) = await stage.ask(reservation("level-e", None))
    assert isinstance(outcome, DesiredStateApplied)
    assert await gone(stage, "level-e")


# -- what people are told of a pod that fits nowhere


def condition(pod: dict[str, Any]) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = pod["status"].get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == "PodScheduled"), {})


def path_of(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


async def events(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cluster.api.call("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
    return [item for item in items if item["reason"] == "FailedScheduling"]


async def test_an_unschedulable_pod_has_a_condition_and_one_event_that_counts(
    stage: EffectHarness, make_pod: MakePod, cluster: Cluster, namespace: str
) -> None:
    pod = make_pod("web", schedulerName="koord-scheduler")
    await stage.observe("pods", f"{namespace}/web")
    (outcome,) = await stage.ask(unschedulable(pod, "0/1 nodes are available: 1 Insufficient cpu."))
    assert outcome == DesiredStateApplied(resource="pods", name=f"{namespace}/web", fields="PodScheduled")
    first = condition(cluster.api.call("GET", path_of(pod)))
    assert (first["status"], first["reason"]) == ("False", "Unschedulable")
    assert first["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    await stage.observe("pods", f"{namespace}/web")
    await asyncio.sleep(1.1)  # times in the API are whole seconds
    await stage.ask(unschedulable(pod, "0/2 nodes are available: 2 Insufficient cpu.", attempt=5))
    second = condition(cluster.api.call("GET", path_of(pod)))
    assert second["message"] == "0/2 nodes are available: 2 Insufficient cpu."
    assert second["lastTransitionTime"] == first["lastTransitionTime"]  # it has been False all the time
    (event,) = await events(cluster, namespace)
    assert event["reportingComponent"] == "koordstream/koord-scheduler"
    assert (event["count"], event["type"], event["involvedObject"]["uid"]) == (5, "Warning", pod["metadata"]["uid"])
    assert event["message"] == second["message"]
    assert event["firstTimestamp"] < event["lastTimestamp"]
    await stage.ask(unschedulable(pod, "0/2 nodes match", code="NodeAffinity"))
    assert len(await events(cluster, namespace)) == 2


async def test_kubectl_describe_shows_why_a_pod_waits(
    stage: EffectHarness, make_pod: MakePod, cluster: Cluster, namespace: str
) -> None:
    pod = make_pod("web")
    await stage.observe("pods", f"{namespace}/web")
    await stage.ask(unschedulable(pod, "0/7 nodes are available: 7 node is hot."))
    said = cluster.kubectl("describe", "pod", "web", "-n", namespace)
    assert "FailedScheduling" in said
    assert "0/7 nodes are available: 7 node is hot." in said
    assert "koordstream/default-scheduler" in said


async def test_a_report_on_another_pod_of_the_same_name_is_not_written(
    stage: EffectHarness, make_pod: MakePod, cluster: Cluster, namespace: str
) -> None:
    first = make_pod("web")
    await stage.observe("pods", f"{namespace}/web")
    cluster.api.call("DELETE", path_of(first) + "?gracePeriodSeconds=0")
    second = make_pod("web")
    (outcome,) = await stage.ask(unschedulable(first))
    assert isinstance(outcome, DesiredStateSuperseded)
    assert condition(cluster.api.call("GET", path_of(second))) == {}


async def test_a_report_on_a_pod_that_is_gone_has_nobody_to_tell(
    stage: EffectHarness, make_pod: MakePod, cluster: Cluster, namespace: str
) -> None:
    pod = make_pod("web")
    await stage.observe("pods", f"{namespace}/web")
    cluster.api.call("DELETE", path_of(pod) + "?gracePeriodSeconds=0")
    (outcome,) = await stage.ask(unschedulable(pod))
    assert isinstance(outcome, DesiredStateSuperseded)


async def test_an_event_that_cannot_be_recorded_does_not_fail_the_condition(
    stage: EffectHarness, make_pod: MakePod, cluster: Cluster, namespace: str, proxy: FaultProxy
) -> None:
    pod = make_pod("web")
    await stage.observe("pods", f"{namespace}/web")
    proxy.fail("POST", "/events", status=403)
    outcomes: list[Event] = await stage.ask(unschedulable(pod))
    assert [type(outcome) for outcome in outcomes] == [DesiredStateApplied]
    assert condition(cluster.api.call("GET", path_of(pod)))["status"] == "False"


@pytest.mark.parametrize(("kind", "patches"), [("lose", 1), ("hang", 2)])
async def test_a_condition_without_an_answer_is_read_back(
    kind: str, patches: int, stage: EffectHarness, make_pod: MakePod, namespace: str, proxy: FaultProxy
) -> None:
    pod = make_pod("web")
    await stage.observe("pods", f"{namespace}/web")
    proxy.fail("PATCH", "/status", kind)
    (outcome,) = await stage.ask(unschedulable(pod))
    assert isinstance(outcome, DesiredStateApplied)
    assert proxy.count("PATCH", "/status") == patches
