"""What the gateway appends without asking the API: differences, verdicts, superseded_outcomes."""

from services.gateway.effects import outcomes
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

# -- verdicts

PLACED = PodPlaced(pod="shop/web-0", pod_uid="uid-of-web-0", node="n1", cycle=1, request={})
REPORT = PodUnschedulable(pod="shop/web-0", pod_uid="uid-of-web-0", cycle=1, code="x", message="x")
EVICT = EvictionRequested(pod="shop/web-0", pod_uid="uid-of-web-0", reason="hot")


def test_a_pod_that_was_seen_on_its_node_is_bound() -> None:
    assert outcomes.outcome_from_state(known(pod(node="n1")), PLACED) == PodBound(
        pod="shop/web-0", pod_uid="uid-of-web-0", node="n1"
    )


def test_a_pod_that_was_seen_elsewhere_or_is_gone_is_not_bound() -> None:
    elsewhere = outcomes.outcome_from_state(known(pod(node="n2")), PLACED)
    assert isinstance(elsewhere, BindRejected)
    assert "n2 already" in elsewhere.reason
    gone = outcomes.outcome_from_state(known(), PLACED)
    assert isinstance(gone, BindRejected)
    assert "is gone" in gone.reason


def test_a_node_that_is_not_there_is_refused_because_the_api_server_would_not() -> None:
    refused = outcomes.outcome_from_state(known(pod(), nodes=()), PLACED)
    assert isinstance(refused, BindRejected)
    assert "there is no node n1" in refused.reason


def test_a_pod_that_waits_must_be_asked_about() -> None:
    state = known(pod())
    assert outcomes.outcome_from_state(state, PLACED) is None
    assert outcomes.outcome_from_state(state, REPORT) is None
    assert outcomes.outcome_from_state(state, EVICT) is None


def test_a_report_on_a_pod_that_was_bound_or_is_gone_is_superseded() -> None:
    outcome = DesiredStateSuperseded(resource="pods", name="shop/web-0", fields="PodScheduled")
    assert outcomes.outcome_from_state(known(pod(node="n1")), REPORT) == outcome
    assert outcomes.outcome_from_state(known(), REPORT) == outcome


def test_a_pod_that_is_leaving_or_gone_is_evicted() -> None:
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-05-01T20:07:00Z"
    evicted = PodEvicted(pod="shop/web-0", pod_uid="uid-of-web-0")
    assert outcomes.outcome_from_state(known(leaving), EVICT) == evicted
    assert outcomes.outcome_from_state(known(), EVICT) == evicted


def test_fields_of_another_object_with_the_same_name_are_not_meant() -> None:
    level = FieldsDesired(resource="pods", name="shop/web-0", fields="device", patch={}, uid="older")
    assert isinstance(outcomes.outcome_from_state(known(pod()), level), DesiredStateSuperseded)


# -- levels


def test_a_level_that_is_being_written_is_not_called_superseded_yet() -> None:
    log = Log()
    older = log.append("scheduling", REPORT)
    log.append("scheduling", REPORT)
    state = state_after(log.in_order([]))
    assert outcomes.superseded_outcomes(state, {older}) == []
    (draft,) = outcomes.superseded_outcomes(state, {})
    assert draft.cause == older
    assert draft.correlation == "uid-of-web-0"


def test_levels_of_objects_that_are_gone_have_no_owner() -> None:
    log = Log()
    level = FieldsDesired(resource="nodes", name="n1", fields="batch", patch={})
    cause = log.append("slo", level)
    log.append("cluster", Draft(outcomes.applied(level), cause))
    assert outcomes.without_object(state_after(log.in_order([])), {"nodes"}) == {cause}
    log.append("cluster", NodeObserved(node="n1", object=kept("nodes", node())))
    assert outcomes.without_object(state_after(log.in_order([])), {"nodes"}) == set()


def test_an_outcome_names_its_intent_and_the_pod() -> None:
    draft = outcomes.outcome_draft(Cause("scheduling", 7), PLACED, outcomes.bound(PLACED))
    assert (draft.cause, draft.correlation) == (Cause("scheduling", 7), "uid-of-web-0")
    permission = outcomes.missing_permission(PLACED, "create pods/binding")
    assert (permission.name, permission.pod_uid) == ("shop/web-0", "uid-of-web-0")
