"""What the gateway appends without asking the API: differences, verdicts, supersessions."""

from typing import Any

from hypothesis import given as holds_for
from hypothesis import strategies as st

from services.gateway import decide
from services.gateway.intents import Place
from services.gateway.state import GatewayState
from shared.events import Cause, Draft, Event
from shared.events.cluster import (
    BindRejected,
    DesiredStateSuperseded,
    NodeObserved,
    ObjectObserved,
    PodBound,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested, FieldsDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from tests.support.gateway_objects import Log, kept, node, pod, seen, state_after

PLACE = Place("pods", "shop/web-0")


def news(**fields: Any) -> dict[Place, Any]:
    return {PLACE: seen("pods", pod(**fields))}


def known(*bodies: dict[str, Any], nodes: tuple[str, ...] = ("n1",)) -> GatewayState:
    """The state of a log that knows these pods and nodes."""
    log = Log()
    for body in bodies:
        seen_pod = seen("pods", body)
        log.append("cluster", decide.observed("pods", seen_pod))
    for name in nodes:
        log.append("cluster", NodeObserved(node=name, object=kept("nodes", node(name))))
    return state_after(log.in_order([]))


def events(drafts: list[Draft]) -> list[Event]:
    return [draft.event for draft in drafts]


def test_an_object_that_is_new_is_observed_and_one_that_is_known_is_not() -> None:
    (observed,) = decide.differences(GatewayState(), news())
    assert isinstance(observed.event, PodObserved)
    assert observed.correlation == "uid-of-web-0"
    assert decide.differences(known(pod()), news(version="99")) == []


def test_an_object_made_anew_under_the_same_name_is_deleted_first() -> None:
    drafts = decide.differences(known(pod(uid="old")), news(uid="new"))
    assert events(drafts)[0] == PodDeleted(pod="shop/web-0", pod_uid="old")
    assert isinstance(drafts[1].event, PodObserved)


def test_what_is_gone_is_said_once_and_only_of_what_was_known() -> None:
    assert events(decide.differences(known(pod()), {PLACE: None})) == [
        PodDeleted(pod="shop/web-0", pod_uid="uid-of-web-0")
    ]
    assert decide.differences(GatewayState(), {PLACE: None}) == []


def test_what_a_complete_list_does_not_name_is_gone() -> None:
    state = known(pod("web-0"), pod("web-1"))
    assert decide.absent(state, "pods", {"shop/web-1"}) == [PLACE]


BODIES = st.sampled_from([None, pod(), pod(node="n1"), pod(uid="other"), pod(version="8")])


@holds_for(st.lists(BODIES, max_size=8))
def test_after_any_sightings_the_log_says_what_was_seen_last(sightings: list[dict[str, Any] | None]) -> None:
    """However sightings are coalesced: the digest of what the log knows is that of the last one."""
    log, state = Log(), GatewayState()
    for body in sightings:
        log.append("cluster", *decide.differences(state, {PLACE: seen("pods", body) if body else None}))
        state = state_after(log.in_order([]))
    last = sightings[-1] if sightings else None
    assert decide.differences(state, {PLACE: seen("pods", last) if last else None}) == []
    assert list(state.pods) == ([last["metadata"]["uid"]] if last else [])


# -- verdicts

PLACED = PodPlaced(pod="shop/web-0", pod_uid="uid-of-web-0", node="n1", cycle=1, request={})
REPORT = PodUnschedulable(pod="shop/web-0", pod_uid="uid-of-web-0", cycle=1, code="x", message="x")
EVICT = EvictionRequested(pod="shop/web-0", pod_uid="uid-of-web-0", reason="hot")


def test_a_pod_that_was_seen_on_its_node_is_bound() -> None:
    assert decide.verdict(known(pod(node="n1")), PLACED) == PodBound(
        pod="shop/web-0", pod_uid="uid-of-web-0", node="n1"
    )


def test_a_pod_that_was_seen_elsewhere_or_is_gone_is_not_bound() -> None:
    elsewhere = decide.verdict(known(pod(node="n2")), PLACED)
    assert isinstance(elsewhere, BindRejected)
    assert "n2 already" in elsewhere.reason
    gone = decide.verdict(known(), PLACED)
    assert isinstance(gone, BindRejected)
    assert "is gone" in gone.reason


def test_a_node_that_is_not_there_is_refused_because_the_api_server_would_not() -> None:
    refused = decide.verdict(known(pod(), nodes=()), PLACED)
    assert isinstance(refused, BindRejected)
    assert "there is no node n1" in refused.reason


def test_a_pod_that_waits_must_be_asked_about() -> None:
    state = known(pod())
    assert decide.verdict(state, PLACED) is None
    assert decide.verdict(state, REPORT) is None
    assert decide.verdict(state, EVICT) is None


def test_a_report_on_a_pod_that_was_bound_or_is_gone_is_superseded() -> None:
    outcome = DesiredStateSuperseded(resource="pods", name="shop/web-0", fields="PodScheduled")
    assert decide.verdict(known(pod(node="n1")), REPORT) == outcome
    assert decide.verdict(known(), REPORT) == outcome


def test_a_pod_that_is_leaving_or_gone_is_evicted() -> None:
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-05-01T20:07:00Z"
    evicted = PodEvicted(pod="shop/web-0", pod_uid="uid-of-web-0")
    assert decide.verdict(known(leaving), EVICT) == evicted
    assert decide.verdict(known(), EVICT) == evicted


def test_fields_of_another_object_with_the_same_name_are_not_meant() -> None:
    level = FieldsDesired(resource="pods", name="shop/web-0", fields="device", patch={}, uid="older")
    assert isinstance(decide.verdict(known(pod()), level), DesiredStateSuperseded)


# -- levels


def test_a_level_that_is_being_written_is_not_called_superseded_yet() -> None:
    log = Log()
    older = log.append("scheduling", REPORT)
    log.append("scheduling", REPORT)
    state = state_after(log.in_order([]))
    assert decide.supersessions(state, {older}) == []
    (draft,) = decide.supersessions(state, {})
    assert draft.cause == older
    assert draft.correlation == "uid-of-web-0"


def test_levels_of_objects_that_are_gone_have_no_owner() -> None:
    log = Log()
    level = FieldsDesired(resource="nodes", name="n1", fields="batch", patch={})
    cause = log.append("slo", level)
    log.append("cluster", Draft(decide.written(level), cause))
    assert decide.ownerless(state_after(log.in_order([])), {"nodes"}) == {cause}
    log.append("cluster", NodeObserved(node="n1", object=kept("nodes", node())))
    assert decide.ownerless(state_after(log.in_order([])), {"nodes"}) == set()


def test_an_outcome_names_its_intent_and_the_pod() -> None:
    draft = decide.answer(Cause("scheduling", 7), PLACED, decide.bound(PLACED))
    assert (draft.cause, draft.correlation) == (Cause("scheduling", 7), "uid-of-web-0")
    permission = decide.not_allowed(PLACED, "create pods/binding")
    assert (permission.name, permission.pod_uid) == ("shop/web-0", "uid-of-web-0")


def test_a_plain_object_is_observed_whole() -> None:
    body = {"metadata": {"name": "q", "namespace": "shop", "uid": "u"}, "spec": {"max": {"cpu": 4}}}
    resource = "elasticquotas.scheduling.sigs.k8s.io"
    (draft,) = decide.differences(GatewayState(), {Place(resource, "shop/q"): seen(resource, body)})
    assert isinstance(draft.event, ObjectObserved)
    assert draft.event.object["spec"] == {"max": {"cpu": 4}}
