"""Outcomes of intents: the same from the gateway on a kube-apiserver and the simulator."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from shared.events.cluster import (
    BindRejected,
    DesiredStateApplied,
    DesiredStateRejected,
    DesiredStateSuperseded,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodBound,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from tests.contract.scenario import Scenario
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODE_SLOS = "nodeslos.slo.koordinator.sh"


def placed(scenario: Scenario, uid: str, node: str, name: str = "web") -> PodPlaced:
    return PodPlaced(pod_uid=uid, pod=scenario.key(name), node=node, cycle=1, request={"cpu": 500})


async def test_a_placed_pod_is_bound_and_then_observed_on_its_node(scenario: Scenario) -> None:
    node, uid = await scenario.create_node("n"), await scenario.create_pod()
    outcome = await scenario.log.outcome(placed(scenario, uid, node))
    assert isinstance(outcome, PodBound)
    assert (outcome.pod, outcome.pod_uid, outcome.node) == (scenario.key("web"), uid, node)
    seen = await scenario.log.wait_for(
        PodObserved, scenario.key("web"), lambda event: event.object.spec.node_name == node
    )
    condition = seen.object.condition("PodScheduled")
    assert condition is not None
    assert condition.status == "True"
    assert condition.last_transition_time is not None
    assert (await scenario.client.get(scenario.reference("Pod", "web")))["spec"]["nodeName"] == node


async def test_annotations_of_a_placement_are_written_with_the_binding(scenario: Scenario) -> None:
    node, uid = await scenario.create_node("n"), await scenario.create_pod()
    given = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-3"}'}
    assert isinstance(await scenario.log.outcome(replace(placed(scenario, uid, node), annotations=given)), PodBound)
    seen = await scenario.log.wait_for(
        PodObserved, scenario.key("web"), lambda event: event.object.spec.node_name == node
    )
    assert (seen.object.metadata.annotations or {}).items() >= given.items()


async def test_a_binding_that_already_exists_is_a_success(scenario: Scenario) -> None:
    node, uid = await scenario.create_node("n"), await scenario.create_pod()
    for _ in range(2):
        assert isinstance(await scenario.log.outcome(placed(scenario, uid, node)), PodBound)


async def test_a_pod_bound_to_another_node_stays_there(scenario: Scenario) -> None:
    here, there = await scenario.create_node("here"), await scenario.create_node("there")
    uid = await scenario.create_pod()
    await scenario.log.outcome(placed(scenario, uid, here))
    outcome = await scenario.log.outcome(placed(scenario, uid, there))
    assert isinstance(outcome, BindRejected)
    assert here in outcome.reason
    assert (await scenario.client.get(scenario.reference("Pod", "web")))["spec"]["nodeName"] == here


async def test_a_deleted_pod_cannot_be_bound(scenario: Scenario) -> None:
    node, uid = await scenario.create_node("n"), await scenario.create_pod()
    await scenario.client.delete(scenario.reference("Pod", "web"))
    await scenario.log.wait_for(PodDeleted, scenario.key("web"))
    assert isinstance(await scenario.log.outcome(placed(scenario, uid, node)), BindRejected)


async def test_a_recreated_pod_is_not_bound_by_an_older_placement(scenario: Scenario) -> None:
    node, first = await scenario.create_node("n"), await scenario.create_pod()
    await scenario.client.delete(scenario.reference("Pod", "web"))
    await scenario.create_pod()
    outcome = await scenario.log.outcome(placed(scenario, first, node))
    assert isinstance(outcome, BindRejected)
    assert outcome.pod_uid == first
    assert not (await scenario.client.get(scenario.reference("Pod", "web")))["spec"].get("nodeName")


async def test_a_node_that_does_not_exist_is_refused(scenario: Scenario) -> None:
    uid = await scenario.create_pod()
    outcome = await scenario.log.outcome(placed(scenario, uid, scenario.name("nowhere")))
    assert isinstance(outcome, BindRejected)
    assert scenario.name("nowhere") in outcome.reason


async def test_a_gated_pod_cannot_be_bound(scenario: Scenario) -> None:
    node, uid = (
        await scenario.create_node("n"),
        await scenario.create_pod(schedulingGates=[{"name": "example.org/wait"}]),
    )
    assert isinstance(await scenario.log.outcome(placed(scenario, uid, node)), BindRejected)


async def test_many_pods_placed_at_once_are_all_bound(scenario: Scenario) -> None:
    node = await scenario.create_node("n")
    names = [f"p{number}" for number in range(30)]
    uids = await asyncio.gather(*(scenario.create_pod(name) for name in names))
    causes = await scenario.log.append_intents(
        *(placed(scenario, uid, node, name) for uid, name in zip(uids, names, strict=True))
    )
    outcomes = [(await scenario.log.outcomes(cause))[0] for cause in causes]
    assert [(type(one), getattr(one, "pod_uid", "")) for one in outcomes] == [(PodBound, uid) for uid in uids]


async def test_an_unschedulable_pod_has_the_condition_until_it_is_bound(scenario: Scenario) -> None:
    node, uid = await scenario.create_node("n"), await scenario.create_pod()
    report = PodUnschedulable(
        pod_uid=uid, pod=scenario.key("web"), cycle=1, code="InsufficientResource", message="0/1 nodes are available"
    )
    outcome = await scenario.log.outcome(report)
    assert isinstance(outcome, DesiredStateApplied)
    assert (outcome.resource, outcome.name, outcome.fields) == ("pods", scenario.key("web"), "PodScheduled")
    seen = await scenario.log.wait_for(
        PodObserved, scenario.key("web"), lambda event: bool(event.object.status.conditions)
    )
    condition = seen.object.condition("PodScheduled")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    assert "0/1 nodes are available" in condition.message
    await scenario.log.outcome(placed(scenario, uid, node))
    await scenario.log.wait_for(
        PodObserved,
        scenario.key("web"),
        lambda event: bool((one := event.object.condition("PodScheduled")) and one.status == "True"),
    )
    assert isinstance(await scenario.log.outcome(report), DesiredStateSuperseded)


async def test_an_eviction_deletes_the_pod(scenario: Scenario) -> None:
    uid = await scenario.create_pod()
    eviction = EvictionRequested(pod_uid=uid, pod=scenario.key("web"), reason="the node is too hot")
    outcome = await scenario.log.outcome(eviction)
    assert isinstance(outcome, PodEvicted)
    await scenario.log.wait_for(PodDeleted, scenario.key("web"))
    assert isinstance(await scenario.log.outcome(eviction), PodEvicted)


async def test_an_eviction_spares_a_recreated_pod(scenario: Scenario) -> None:
    first = await scenario.create_pod()
    await scenario.client.delete(scenario.reference("Pod", "web"))
    await scenario.create_pod()
    outcome = await scenario.log.outcome(EvictionRequested(pod_uid=first, pod=scenario.key("web"), reason="too hot"))
    assert isinstance(outcome, PodEvicted)
    assert (await scenario.client.get(scenario.reference("Pod", "web")))["metadata"].get("deletionTimestamp") is None


async def test_a_bound_pod_that_is_evicted_is_observed_as_terminating(scenario: Scenario) -> None:
    node, uid = await scenario.create_node("n"), await scenario.create_pod()
    await scenario.log.outcome(placed(scenario, uid, node))
    await scenario.log.wait_for(PodObserved, scenario.key("web"), lambda event: event.object.spec.node_name == node)
    outcome = await scenario.log.outcome(EvictionRequested(pod_uid=uid, pod=scenario.key("web"), reason="too hot"))
    assert isinstance(outcome, PodEvicted)
    terminating = await scenario.log.wait_for(
        PodObserved, scenario.key("web"), lambda event: event.object.metadata.deletion_timestamp is not None
    )
    assert terminating.object.condition("DisruptionTarget") is not None


def desired(scenario: Scenario, value: str, group: str = "load") -> FieldsDesired:
    patch = {"metadata": {"labels": {f"node.koordinator.sh/{group}": value}}}
    return FieldsDesired(resource="nodes", name=scenario.name("n"), fields=group, patch=patch)


async def labels(scenario: Scenario) -> dict[str, str]:
    found = (await scenario.client.get(scenario.node("n")))["metadata"].get("labels", {})
    return {name: value for name, value in found.items() if name.startswith("node.koordinator.sh/")}


async def test_a_desired_state_is_written_and_fields_of_another_group_stay(scenario: Scenario) -> None:
    await scenario.create_node("n")
    for event in (desired(scenario, "high"), desired(scenario, "old", "age")):
        outcome = await scenario.log.outcome(event)
        assert isinstance(outcome, DesiredStateApplied)
        assert (outcome.resource, outcome.name, outcome.fields) == ("nodes", scenario.name("n"), event.fields)
    assert await labels(scenario) == {"node.koordinator.sh/load": "high", "node.koordinator.sh/age": "old"}
    await scenario.log.wait_for(
        NodeObserved,
        scenario.name("n"),
        lambda event: (event.object.metadata.labels or {}).get("node.koordinator.sh/age") == "old",
    )


async def test_of_concurrent_desired_states_the_newest_is_written(scenario: Scenario) -> None:
    await scenario.create_node("n")
    causes = await scenario.log.append_intents(*(desired(scenario, value) for value in ("low", "high", "higher")))
    kinds = [type((await scenario.log.outcomes(cause))[0]) for cause in causes]
    assert kinds == [DesiredStateSuperseded, DesiredStateSuperseded, DesiredStateApplied]
    assert await labels(scenario) == {"node.koordinator.sh/load": "higher"}


async def test_a_desired_state_is_written_again_after_drift(scenario: Scenario) -> None:
    await scenario.create_node("n")
    await scenario.log.outcome(desired(scenario, "high"))
    await scenario.client.patch(scenario.node("n"), {"metadata": {"labels": {"node.koordinator.sh/load": "mine"}}})
    await until(lambda: labels(scenario), holds=lambda found: found == {"node.koordinator.sh/load": "high"})


async def test_desired_status_is_written_to_the_status(scenario: Scenario) -> None:
    await scenario.create_node("n")
    patch = {"status": {"allocatable": {"kubernetes.io/batch-cpu": "4000"}}}
    event = FieldsDesired(resource="nodes", name=scenario.name("n"), fields="batch", patch=patch, subresource="status")
    assert isinstance(await scenario.log.outcome(event), DesiredStateApplied)
    allocatable = (await scenario.client.get(scenario.node("n")))["status"]["allocatable"]
    assert (allocatable["kubernetes.io/batch-cpu"], allocatable["cpu"]) in {("4000", "32"), ("4k", "32")}


async def test_a_desired_state_of_a_missing_object_is_rejected(scenario: Scenario) -> None:
    outcome = await scenario.log.outcome(desired(scenario, "high"))
    assert isinstance(outcome, DesiredStateRejected)
    assert scenario.name("n") in outcome.reason


async def test_a_desired_state_of_another_uid_is_superseded(scenario: Scenario) -> None:
    await scenario.create_node("n")
    assert isinstance(
        await scenario.log.outcome(replace(desired(scenario, "high"), uid="another")), DesiredStateSuperseded
    )
    assert await labels(scenario) == {}


async def test_a_desired_state_that_the_api_refuses_is_rejected(scenario: Scenario) -> None:
    await scenario.create_node("n")
    patch = {"metadata": {"labels": {"node.koordinator.sh/load": ["high"]}}}
    outcome = await scenario.log.outcome(
        FieldsDesired(resource="nodes", name=scenario.name("n"), fields="load", patch=patch)
    )
    assert isinstance(outcome, DesiredStateRejected)
    assert "string" in outcome.reason or "str" in outcome.reason


async def test_a_desired_state_ends_when_its_object_is_deleted(scenario: Scenario) -> None:
    await scenario.create_node("n")
    (cause,) = await scenario.log.append_intents(desired(scenario, "high"))
    await scenario.log.outcomes(cause)
    await scenario.client.delete(scenario.node("n"))
    assert [type(one) for one in await scenario.log.outcomes(cause, 2)] == [DesiredStateApplied, DesiredStateSuperseded]
    await scenario.create_node("n")
    assert await labels(scenario) == {}


async def test_a_section_that_becomes_empty_is_written_as_empty(scenario: Scenario) -> None:
    """kube-apiserver merges an emptied object of nested fields to null, and rejects that: NodeSLOs stayed as they were."""
    name = await scenario.create_node("n")
    head = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": name}}
    strategies: dict[str, Any] = {"beClass": {"cpuQOS": {"groupIdentity": -1}}, "lsClass": {"cpuQOS": {"enable": True}}}
    written: list[dict[str, Any]] = [{}, strategies, {"beClass": {}}, strategies, {}]
    for strategy in written:
        desired = ObjectDesired(resource=NODE_SLOS, name=name, body={"spec": {"resourceQOSStrategy": strategy}})
        outcome = await scenario.log.outcome(desired)
        assert isinstance(outcome, DesiredStateApplied), outcome
        assert (await scenario.client.get(head))["spec"] == {"resourceQOSStrategy": strategy}


async def test_a_custom_resource_is_created_updated_and_deleted(scenario: Scenario) -> None:
    name = scenario.name("n")
    head = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": name}}
    for percent in (60, 70):
        spec = {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": percent}}
        outcome = await scenario.log.outcome(ObjectDesired(resource=NODE_SLOS, name=name, body={"spec": spec}))
        assert isinstance(outcome, DesiredStateApplied)
        assert (await scenario.client.get(head))["spec"] == spec
        await scenario.log.wait_for(ObjectObserved, name, lambda event, spec=spec: event.object["spec"] == spec)  # type: ignore[misc]
    assert isinstance(
        await scenario.log.outcome(ObjectDesired(resource=NODE_SLOS, name=name, body=None)), DesiredStateApplied
    )
    await scenario.log.wait_for(ObjectDeleted, name)
    assert isinstance(
        await scenario.log.outcome(ObjectDesired(resource=NODE_SLOS, name=name, body=None)), DesiredStateApplied
    )
