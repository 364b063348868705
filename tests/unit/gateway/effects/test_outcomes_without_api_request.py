"""Outcomes that follow from the State without a request: of placements, evictions, conditions and desired fields."""

from services.gateway.effects import outcome_events, outcomes_without_api_request
from shared.events import Cause, Draft
from shared.events.cluster import (
    BindRejected,
    DesiredStateSuperseded,
    NodeObserved,
    PodBound,
    PodEvicted,
)
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from tests.support.gateway_objects import Log, kept, known, node, pod, state_after

PLACED = PodPlaced(pod="shop/web-0", pod_uid="uid-of-web-0", node="n1", cycle=1, request={})
CONDITION = PodUnschedulable(pod="shop/web-0", pod_uid="uid-of-web-0", cycle=1, code="x", message="x")
EVICTION = EvictionRequested(pod="shop/web-0", pod_uid="uid-of-web-0", reason="hot")


def test_a_pod_observed_on_its_node_is_bound() -> None:
    assert outcomes_without_api_request.outcome_from_state(known(pod(node="n1")), PLACED) == PodBound(
        pod="shop/web-0", pod_uid="uid-of-web-0", node="n1"
    )


def test_a_pod_observed_on_another_node_or_deleted_is_not_bound() -> None:
    on_other_node = outcomes_without_api_request.outcome_from_state(known(pod(node="n2")), PLACED)
    assert isinstance(on_other_node, BindRejected)
    assert "n2 already" in on_other_node.reason
    deleted = outcomes_without_api_request.outcome_from_state(known(), PLACED)
    assert isinstance(deleted, BindRejected)
    assert "is gone" in deleted.reason


def test_a_placement_on_a_missing_node_is_rejected_because_the_api_server_would_accept_it() -> None:
    refused = outcomes_without_api_request.outcome_from_state(known(pod(), nodes=()), PLACED)
    assert isinstance(refused, BindRejected)
    assert "there is no node n1" in refused.reason


def test_a_waiting_pod_needs_a_request() -> None:
    state = known(pod())
    assert outcomes_without_api_request.outcome_from_state(state, PLACED) is None
    assert outcomes_without_api_request.outcome_from_state(state, CONDITION) is None
    assert outcomes_without_api_request.outcome_from_state(state, EVICTION) is None


def test_a_condition_of_a_pod_that_was_bound_or_deleted_is_superseded() -> None:
    outcome = DesiredStateSuperseded(resource="pods", name="shop/web-0", fields="PodScheduled")
    assert outcomes_without_api_request.outcome_from_state(known(pod(node="n1")), CONDITION) == outcome
    assert outcomes_without_api_request.outcome_from_state(known(), CONDITION) == outcome


def test_a_terminating_or_deleted_pod_counts_as_evicted() -> None:
    terminating = pod(node="n1")
    terminating["metadata"]["deletionTimestamp"] = "2026-05-01T20:07:00Z"
    terminating["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    ]
    gone = PodEvicted(pod="shop/web-0", pod_uid="uid-of-web-0")
    spends = PodEvicted(pod="shop/web-0", pod_uid="uid-of-web-0", node="n1", workload="ReplicaSet/web")
    assert outcomes_without_api_request.outcome_from_state(known(terminating), EVICTION) == spends
    assert outcomes_without_api_request.outcome_from_state(known(), EVICTION) == gone


def test_desired_fields_of_another_uid_are_superseded() -> None:
    desired = FieldsDesired(resource="pods", name="shop/web-0", fields="device", patch={}, uid="older")
    assert isinstance(outcomes_without_api_request.outcome_from_state(known(pod()), desired), DesiredStateSuperseded)


# -- desired state


def test_a_desired_state_in_flight_is_not_superseded_yet() -> None:
    log = Log()
    older = log.append("scheduling", CONDITION)
    log.append("scheduling", CONDITION)
    state = state_after(log.in_order([]))
    assert outcomes_without_api_request.superseded_outcomes(state, {older}) == []
    (draft,) = outcomes_without_api_request.superseded_outcomes(state, {})
    assert draft.cause == older
    assert draft.correlation == "uid-of-web-0"


def test_desired_states_of_deleted_objects_are_found() -> None:
    log = Log()
    desired = FieldsDesired(resource="nodes", name="n1", fields="batch", patch={})
    cause = log.append("slo", desired)
    log.append("cluster", Draft(outcome_events.applied(desired), cause))
    assert outcomes_without_api_request.without_object(state_after(log.in_order([])), {"nodes"}) == {cause}
    log.append("cluster", NodeObserved(node="n1", object=kept("nodes", node())))
    assert outcomes_without_api_request.without_object(state_after(log.in_order([])), {"nodes"}) == set()


def test_a_desired_state_of_an_object_that_another_one_of_its_name_replaced_has_no_object() -> None:
    log = Log()
    desired = FieldsDesired(resource="nodes", name="n1", fields="batch", patch={}, uid="replaced")
    cause = log.append("slo", desired)
    log.append("cluster", Draft(outcome_events.applied(desired), cause))
    log.append("cluster", NodeObserved(node="n1", object=kept("nodes", node())))
    assert outcomes_without_api_request.without_object(state_after(log.in_order([])), {"nodes"}) == {cause}


def test_an_outcome_names_its_intent_and_the_pod() -> None:
    draft = outcome_events.outcome_draft(Cause("scheduling", 7), PLACED, outcome_events.bound(PLACED))
    assert (draft.cause, draft.correlation) == (Cause("scheduling", 7), "uid-of-web-0")
    permission = outcome_events.missing_permission(PLACED, "create pods/binding")
    assert (permission.name, permission.pod_uid) == ("shop/web-0", "uid-of-web-0")
