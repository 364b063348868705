"""Execution of intents: each ends in one outcome, by the rules of the API server."""

from typing import Any

from msgspec.structs import replace

from shared.events.cluster import (
    BindRejected,
    DesiredStateApplied,
    DesiredStateRejected,
    DesiredStateSuperseded,
    EvictionRejected,
    ObjectDeleted,
    PodBound,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from tests.unit.simulator.simulated_world import World, node, pod

RESERVATION = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation"}
RESERVATIONS = "reservations.scheduling.koordinator.sh"


def a_world() -> World:
    world = World()
    world.create(node("n1"), node("n2"), pod())
    return world


def uid(world: World, key: str = "default/web") -> str:
    return world.state.pods()[key].metadata.uid


def placed(world: World, node: str = "n1", **changes: Any) -> PodPlaced:
    intent = PodPlaced(pod_uid=uid(world), pod="default/web", node=node, cycle=1, request={})
    return replace(intent, **changes)


def test_a_bound_pod_has_its_node_and_the_condition_with_its_time() -> None:
    world = a_world()
    assert world.intend(placed(world)) == [PodBound(pod="default/web", pod_uid=uid(world), node="n1")]
    bound = world.state.pods()["default/web"]
    assert bound.spec.node_name == "n1"
    condition = bound.condition("PodScheduled")
    assert condition is not None
    assert (condition.status, condition.last_transition_time) == ("True", "2027-01-15T08:00:00Z")


def test_a_pod_already_on_the_node_counts_as_bound() -> None:
    world = a_world()
    world.intend(placed(world))
    before = len(world.events(PodObserved))
    assert isinstance(world.intend(placed(world))[0], PodBound)
    assert len(world.events(PodObserved)) == before


def test_an_impossible_binding_is_rejected_with_its_reason() -> None:
    world = a_world()
    assert world.intend(placed(world, pod="default/gone")) == [
        BindRejected(pod="default/gone", pod_uid=uid(world), reason='pods "default/gone" not found')
    ]
    for changes, reason in (
        ({"pod_uid": "old"}, "uid"),
        ({"node": "nowhere"}, 'nodes "nowhere" not found'),
    ):
        (outcome,) = world.intend(placed(world, **changes))
        assert isinstance(outcome, BindRejected)
        assert reason in outcome.reason
    world.intend(placed(world, "n1"))
    (outcome,) = world.intend(placed(world, "n2"))
    assert isinstance(outcome, BindRejected)
    assert "already assigned to node n1" in outcome.reason


def test_a_gated_pod_is_not_bound() -> None:
    world = a_world()
    world.create(pod("gated", schedulingGates=[{"name": "wait"}]))
    (outcome,) = world.intend(placed(world, pod="default/gated", pod_uid=uid(world, "default/gated")))
    assert isinstance(outcome, BindRejected)


def test_an_unschedulable_pod_gets_the_condition() -> None:
    world = a_world()
    intent = PodUnschedulable(pod_uid=uid(world), pod="default/web", cycle=1, code="Full", message="0/2 nodes: full")
    assert world.intend(intent) == [DesiredStateApplied(resource="pods", name="default/web", fields="PodScheduled")]
    condition = world.state.pods()["default/web"].condition("PodScheduled")
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("False", "Unschedulable", "0/2 nodes: full")


def test_only_the_newest_decision_about_a_pod_is_written() -> None:
    world = a_world()
    first = world.append(
        "scheduling", PodUnschedulable(pod_uid=uid(world), pod="default/web", cycle=1, code="a", message="a")
    )
    second = world.append("scheduling", placed(world, cycle=2))
    world.step()
    assert isinstance(world.outcomes(first)[0], DesiredStateSuperseded)
    assert isinstance(world.outcomes(second)[0], PodBound)


def test_an_evicted_pending_pod_is_removed_at_once_and_a_running_one_after_its_grace_period() -> None:
    world = a_world()
    world.create(pod("waiting"))
    world.intend(placed(world))
    world.advance(1)
    for key in ("default/waiting", "default/web"):
        (outcome,) = world.intend(EvictionRequested(pod_uid=uid(world, key), pod=key, reason="too hot"))
        assert isinstance(outcome, PodEvicted)
        assert (outcome.node, outcome.without_node) == (("", True) if key == "default/waiting" else ("n1", False))
    assert [event.pod for event in world.events(PodDeleted)] == ["default/waiting"]
    leaving = world.state.pods()["default/web"]
    condition = leaving.condition("DisruptionTarget")
    assert leaving.metadata.deletion_timestamp == "2027-01-15T08:00:03Z"
    assert condition is not None
    assert condition.message == "too hot"
    world.advance(2)
    assert "default/web" not in world.state.pods()


def test_an_eviction_does_not_touch_another_pod_of_that_name() -> None:
    world = a_world()
    (outcome,) = world.intend(EvictionRequested(pod_uid="old", pod="default/web", reason="too hot"))
    assert isinstance(outcome, PodEvicted)
    assert (outcome.node, outcome.without_node) == ("", False), "that pod was gone"
    assert "default/web" in world.state.pods()


def test_an_eviction_whose_held_destination_is_gone_is_rejected() -> None:
    world = a_world()
    (outcome,) = world.intend(
        EvictionRequested(pod_uid=uid(world), pod="default/web", reason="too hot", reservation="held")
    )
    assert outcome == EvictionRejected(
        pod="default/web", pod_uid=uid(world), reason="Reservation held, which held its destination, is gone"
    )
    assert world.state.pods()["default/web"].metadata.deletion_timestamp is None


def fields(value: str, group: str = "load") -> FieldsDesired:
    return FieldsDesired(resource="nodes", name="n1", fields=group, patch={"metadata": {"labels": {group: value}}})


def test_of_two_desired_states_of_a_field_group_the_newer_is_written() -> None:
    world = a_world()
    causes = [world.append("scheduling", fields(value)) for value in ("old", "new")]
    causes.append(world.append("scheduling", fields("x", "other")))
    world.step()
    assert [type(world.outcomes(cause)[0]) for cause in causes] == [
        DesiredStateSuperseded,
        DesiredStateApplied,
        DesiredStateApplied,
    ]
    assert world.state.nodes()["n1"].metadata.labels == {"load": "new", "other": "x"}


def test_a_desired_state_is_written_again_after_another_client_changed_it() -> None:
    world = a_world()
    cause = world.append("scheduling", fields("high"))
    world.step()
    drift = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "patch": {"metadata": {"labels": {"load": "low"}}},
    }
    world.request("patch", drift)
    assert world.state.nodes()["n1"].metadata.labels == {"load": "high"}
    assert len(world.outcomes(cause)) == 1


def test_a_cordon_is_written_once_so_that_an_operator_can_end_it() -> None:
    world = a_world()
    cordon = FieldsDesired(resource="nodes", name="n1", fields="cordon", patch={"spec": {"unschedulable": True}})
    world.append("descheduling", cordon)
    world.step()
    assert world.state.nodes()["n1"].spec.unschedulable
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    world.request("patch", {**node, "patch": {"spec": {"unschedulable": False}}})
    assert not world.state.nodes()["n1"].spec.unschedulable


def test_a_cordon_that_is_withdrawn_before_it_is_written_changes_nothing() -> None:
    world = a_world()
    patches: tuple[dict[str, object], ...] = ({"spec": {"unschedulable": True}}, {})
    causes = [
        world.append("descheduling", FieldsDesired(resource="nodes", name="n1", fields="cordon", patch=patch))
        for patch in patches
    ]
    world.step()
    outcomes = [type(outcome) for cause in causes for outcome in world.outcomes(cause)]
    assert outcomes == [DesiredStateSuperseded, DesiredStateApplied]
    assert not world.state.nodes()["n1"].spec.unschedulable


def test_a_desired_state_ends_with_its_object() -> None:
    world = a_world()
    cause = world.append("scheduling", fields("high"))
    world.step()
    world.request("delete", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    assert [type(outcome) for outcome in world.outcomes(cause)] == [DesiredStateApplied, DesiredStateSuperseded]
    world.create(node("n1"))
    assert world.state.nodes()["n1"].metadata.labels is None


def test_a_desired_state_of_an_absent_object_is_rejected_and_one_of_another_uid_superseded() -> None:
    world = a_world()
    absent = FieldsDesired(resource="nodes", name="n9", fields="f", patch={})
    another = FieldsDesired(resource="nodes", name="n1", fields="f", patch={"spec": {"unschedulable": True}}, uid="old")
    assert [type(world.intend(intent)[0]) for intent in (absent, another)] == [
        DesiredStateRejected,
        DesiredStateSuperseded,
    ]
    assert not world.state.nodes()["n1"].spec.unschedulable


def test_a_desired_state_that_the_api_rejects_is_rejected() -> None:
    world = a_world()
    (outcome,) = world.intend(FieldsDesired(resource="nodes", name="n1", fields="f", patch={"spec": {"taints": 1}}))
    assert isinstance(outcome, DesiredStateRejected)
    assert "$.spec.taints" in outcome.reason


def test_a_custom_resource_is_created_updated_and_deleted() -> None:
    world = a_world()

    def decide(body: dict[str, Any] | None) -> Any:
        (outcome,) = world.intend(ObjectDesired(resource=RESERVATIONS, name="slot", body=body))
        assert isinstance(outcome, DesiredStateApplied)
        return world.state.objects[RESERVATIONS].get("slot")

    created = decide(RESERVATION | {"metadata": {"labels": {"a": "1"}}, "spec": {"ttl": "1h", "owners": []}})
    assert created["spec"] == {"ttl": "1h", "owners": []}
    place = RESERVATION | {"metadata": {"name": "slot"}}
    world.request("patch", place | {"patch": {"status": {"phase": "Available"}}, "subresource": "status"})
    updated = decide(RESERVATION | {"spec": {"ttl": "2h"}})
    assert updated["spec"] == {"ttl": "2h"}
    assert updated["status"] == {"phase": "Available"}
    assert updated["metadata"]["uid"] == created["metadata"]["uid"]
    assert "labels" not in updated["metadata"]
    assert decide(None) is None
    assert len(world.events(ObjectDeleted)) == 1
    (again,) = world.intend(ObjectDesired(resource=RESERVATIONS, name="slot", body=None))
    assert isinstance(again, DesiredStateApplied)


def test_many_intents_are_executed_over_several_steps() -> None:
    world = a_world()
    causes = [world.append("scheduling", placed(world, "nowhere")) for _ in range(1_500)]
    world.step()
    assert len(world.state.open_intents["scheduling"]) == 500
    world.step()
    assert all(len(world.outcomes(cause)) == 1 for cause in causes[::100])
    assert not world.state.open_intents["scheduling"]
