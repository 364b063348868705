"""Outcomes of intents: the same from the gateway on a kube-apiserver and the simulator."""

import asyncio

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
from tests.contract.driver import World
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

RESERVATIONS = "reservations.scheduling.koordinator.sh"


def placed(world: World, uid: str, node: str, name: str = "web") -> PodPlaced:
    return PodPlaced(pod_uid=uid, pod=world.key(name), node=node, cycle=1, request={"cpu": 500})


async def test_a_placed_pod_is_bound_and_then_observed_on_its_node(world: World) -> None:
    node, uid = await world.create_node("n"), await world.create_pod()
    outcome = await world.log.outcome(placed(world, uid, node))
    assert isinstance(outcome, PodBound)
    assert (outcome.pod, outcome.pod_uid, outcome.node) == (world.key("web"), uid, node)
    seen = await world.log.wait_for(PodObserved, world.key("web"), lambda event: event.object.spec.node_name == node)
    condition = seen.object.condition("PodScheduled")
    assert condition is not None
    assert condition.status == "True"
    assert condition.last_transition_time is not None
    assert (await world.client.get(world.place("Pod", "web")))["spec"]["nodeName"] == node


async def test_annotations_of_a_placement_are_written_with_the_binding(world: World) -> None:
    node, uid = await world.create_node("n"), await world.create_pod()
    given = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-3"}'}
    assert isinstance(await world.log.outcome(replace(placed(world, uid, node), annotations=given)), PodBound)
    seen = await world.log.wait_for(PodObserved, world.key("web"), lambda event: event.object.spec.node_name == node)
    assert (seen.object.metadata.annotations or {}).items() >= given.items()


async def test_a_binding_that_already_exists_is_a_success(world: World) -> None:
    node, uid = await world.create_node("n"), await world.create_pod()
    for _ in range(2):
        assert isinstance(await world.log.outcome(placed(world, uid, node)), PodBound)


async def test_a_pod_bound_to_another_node_stays_there(world: World) -> None:
    here, there = await world.create_node("here"), await world.create_node("there")
    uid = await world.create_pod()
    await world.log.outcome(placed(world, uid, here))
    outcome = await world.log.outcome(placed(world, uid, there))
    assert isinstance(outcome, BindRejected)
    assert here in outcome.reason
    assert (await world.client.get(world.place("Pod", "web")))["spec"]["nodeName"] == here


async def test_a_deleted_pod_cannot_be_bound(world: World) -> None:
    node, uid = await world.create_node("n"), await world.create_pod()
    await world.client.delete(world.place("Pod", "web"))
    await world.log.wait_for(PodDeleted, world.key("web"))
    assert isinstance(await world.log.outcome(placed(world, uid, node)), BindRejected)


async def test_a_recreated_pod_is_not_bound_by_an_older_placement(world: World) -> None:
    node, first = await world.create_node("n"), await world.create_pod()
    await world.client.delete(world.place("Pod", "web"))
    await world.create_pod()
    outcome = await world.log.outcome(placed(world, first, node))
    assert isinstance(outcome, BindRejected)
    assert outcome.pod_uid == first
    assert not (await world.client.get(world.place("Pod", "web")))["spec"].get("nodeName")


async def test_a_node_that_does_not_exist_is_refused(world: World) -> None:
    uid = await world.create_pod()
    outcome = await world.log.outcome(placed(world, uid, world.name("nowhere")))
    assert isinstance(outcome, BindRejected)
    assert world.name("nowhere") in outcome.reason


async def test_a_gated_pod_cannot_be_bound(world: World) -> None:
    node, uid = await world.create_node("n"), await world.create_pod(schedulingGates=[{"name": "example.org/wait"}])
    assert isinstance(await world.log.outcome(placed(world, uid, node)), BindRejected)


async def test_many_pods_placed_at_once_are_all_bound(world: World) -> None:
    node = await world.create_node("n")
    names = [f"p{number}" for number in range(30)]
    uids = await asyncio.gather(*(world.create_pod(name) for name in names))
    causes = await world.log.intend(*(placed(world, uid, node, name) for uid, name in zip(uids, names, strict=True)))
    outcomes = [(await world.log.outcomes(cause))[0] for cause in causes]
    assert [(type(one), getattr(one, "pod_uid", "")) for one in outcomes] == [(PodBound, uid) for uid in uids]


async def test_an_unschedulable_pod_has_the_condition_until_it_is_bound(world: World) -> None:
    node, uid = await world.create_node("n"), await world.create_pod()
    report = PodUnschedulable(
        pod_uid=uid, pod=world.key("web"), cycle=1, code="InsufficientResource", message="0/1 nodes are available"
    )
    outcome = await world.log.outcome(report)
    assert isinstance(outcome, DesiredStateApplied)
    assert (outcome.resource, outcome.name, outcome.fields) == ("pods", world.key("web"), "PodScheduled")
    seen = await world.log.wait_for(PodObserved, world.key("web"), lambda event: bool(event.object.status.conditions))
    condition = seen.object.condition("PodScheduled")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    assert "0/1 nodes are available" in condition.message
    await world.log.outcome(placed(world, uid, node))
    await world.log.wait_for(
        PodObserved,
        world.key("web"),
        lambda event: bool((one := event.object.condition("PodScheduled")) and one.status == "True"),
    )
    assert isinstance(await world.log.outcome(report), DesiredStateSuperseded)


async def test_an_eviction_deletes_the_pod(world: World) -> None:
    uid = await world.create_pod()
    eviction = EvictionRequested(pod_uid=uid, pod=world.key("web"), reason="the node is too hot")
    outcome = await world.log.outcome(eviction)
    assert isinstance(outcome, PodEvicted)
    await world.log.wait_for(PodDeleted, world.key("web"))
    assert isinstance(await world.log.outcome(eviction), PodEvicted)


async def test_an_eviction_spares_a_recreated_pod(world: World) -> None:
    first = await world.create_pod()
    await world.client.delete(world.place("Pod", "web"))
    await world.create_pod()
    outcome = await world.log.outcome(EvictionRequested(pod_uid=first, pod=world.key("web"), reason="too hot"))
    assert isinstance(outcome, PodEvicted)
    assert (await world.client.get(world.place("Pod", "web")))["metadata"].get("deletionTimestamp") is None


async def test_a_bound_pod_that_is_evicted_is_observed_as_terminating(world: World) -> None:
    node, uid = await world.create_node("n"), await world.create_pod()
    await world.log.outcome(placed(world, uid, node))
    await world.log.wait_for(PodObserved, world.key("web"), lambda event: event.object.spec.node_name == node)
    outcome = await world.log.outcome(EvictionRequested(pod_uid=uid, pod=world.key("web"), reason="too hot"))
    assert isinstance(outcome, PodEvicted)
    terminating = await world.log.wait_for(
        PodObserved, world.key("web"), lambda event: event.object.metadata.deletion_timestamp is not None
    )
    assert terminating.object.condition("DisruptionTarget") is not None


def desired(world: World, value: str, group: str = "load") -> FieldsDesired:
    patch = {"metadata": {"labels": {f"koordinator.sh/{group}": value}}}
    return FieldsDesired(resource="nodes", name=world.name("n"), fields=group, patch=patch)


async def labels(world: World) -> dict[str, str]:
    found = (await world.client.get(world.node("n")))["metadata"].get("labels", {})
    return {name: value for name, value in found.items() if name.startswith("koordinator.sh/")}


async def test_a_desired_state_is_written_and_fields_of_another_group_stay(world: World) -> None:
    await world.create_node("n")
    for event in (desired(world, "high"), desired(world, "old", "age")):
        outcome = await world.log.outcome(event)
        assert isinstance(outcome, DesiredStateApplied)
        assert (outcome.resource, outcome.name, outcome.fields) == ("nodes", world.name("n"), event.fields)
    assert await labels(world) == {"koordinator.sh/load": "high", "koordinator.sh/age": "old"}
    await world.log.wait_for(
        NodeObserved,
        world.name("n"),
        lambda event: (event.object.metadata.labels or {}).get("koordinator.sh/age") == "old",
    )


async def test_of_concurrent_desired_states_the_newest_is_written(world: World) -> None:
    await world.create_node("n")
    causes = await world.log.intend(*(desired(world, value) for value in ("low", "high", "higher")))
    kinds = [type((await world.log.outcomes(cause))[0]) for cause in causes]
    assert kinds == [DesiredStateSuperseded, DesiredStateSuperseded, DesiredStateApplied]
    assert await labels(world) == {"koordinator.sh/load": "higher"}


async def test_a_desired_state_is_written_again_after_drift(world: World) -> None:
    await world.create_node("n")
    await world.log.outcome(desired(world, "high"))
    await world.client.patch(world.node("n"), {"metadata": {"labels": {"koordinator.sh/load": "mine"}}})
    await until(lambda: labels(world), holds=lambda found: found == {"koordinator.sh/load": "high"})


async def test_desired_status_is_written_to_the_status(world: World) -> None:
    await world.create_node("n")
    patch = {"status": {"allocatable": {"kubernetes.io/batch-cpu": "4000"}}}
    event = FieldsDesired(resource="nodes", name=world.name("n"), fields="batch", patch=patch, subresource="status")
    assert isinstance(await world.log.outcome(event), DesiredStateApplied)
    allocatable = (await world.client.get(world.node("n")))["status"]["allocatable"]
    assert (allocatable["kubernetes.io/batch-cpu"], allocatable["cpu"]) in {("4000", "32"), ("4k", "32")}


async def test_a_desired_state_of_a_missing_object_is_rejected(world: World) -> None:
    outcome = await world.log.outcome(desired(world, "high"))
    assert isinstance(outcome, DesiredStateRejected)
    assert world.name("n") in outcome.reason


async def test_a_desired_state_of_another_uid_is_superseded(world: World) -> None:
    await world.create_node("n")
    assert isinstance(await world.log.outcome(replace(desired(world, "high"), uid="another")), DesiredStateSuperseded)
    assert await labels(world) == {}


async def test_a_desired_state_that_the_api_refuses_is_rejected(world: World) -> None:
    await world.create_node("n")
    patch = {"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}}
    outcome = await world.log.outcome(
        FieldsDesired(resource="nodes", name=world.name("n"), fields="taints", patch=patch)
    )
    assert isinstance(outcome, DesiredStateRejected)
    assert "effect" in outcome.reason


async def test_a_desired_state_ends_when_its_object_is_deleted(world: World) -> None:
    await world.create_node("n")
    (cause,) = await world.log.intend(desired(world, "high"))
    await world.log.outcomes(cause)
    await world.client.delete(world.node("n"))
    assert [type(one) for one in await world.log.outcomes(cause, 2)] == [DesiredStateApplied, DesiredStateSuperseded]
    await world.create_node("n")
    assert await labels(world) == {}


async def test_a_custom_resource_is_created_updated_and_deleted(world: World) -> None:
    name = world.name("slot")
    head = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name}}
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]

    def spec(ttl: str) -> dict[str, object]:
        return {"ttl": ttl, "owners": owners, "template": {"spec": {"containers": []}}}

    for ttl in ("1h", "2h"):
        outcome = await world.log.outcome(
            ObjectDesired(resource=RESERVATIONS, name=name, body=head | {"spec": spec(ttl)})
        )
        assert isinstance(outcome, DesiredStateApplied)
        assert (await world.client.get(head))["spec"]["ttl"] == ttl
        await world.log.wait_for(ObjectObserved, name, lambda event, ttl=ttl: event.object["spec"]["ttl"] == ttl)  # type: ignore[misc]
    assert isinstance(
        await world.log.outcome(ObjectDesired(resource=RESERVATIONS, name=name, body=None)), DesiredStateApplied
    )
    await world.log.wait_for(ObjectDeleted, name)
    assert isinstance(
        await world.log.outcome(ObjectDesired(resource=RESERVATIONS, name=name, body=None)), DesiredStateApplied
    )
