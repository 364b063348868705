"""Observations to append: the difference between observed objects and the log."""

from typing import Any

from hypothesis import given as holds_for
from hypothesis import strategies as st

from services.gateway.effects.intents import ObjectRef
from services.gateway.state import GatewayState
from services.gateway.watch.observed_changes import absent, differences
from shared.events import Draft, Event
from shared.events.cluster import ObjectObserved, PodDeleted, PodObserved
from tests.support.gateway_objects import Log, known, pod, seen, state_after

PLACE = ObjectRef("pods", "shop/web-0")


def news(**fields: Any) -> dict[ObjectRef, Any]:
    return {PLACE: seen("pods", pod(**fields))}


def events(drafts: list[Draft]) -> list[Event]:
    return [draft.event for draft in drafts]


def test_an_object_that_is_new_is_observed_and_one_that_is_known_is_not() -> None:
    (observed,) = differences(GatewayState(), news())
    assert isinstance(observed.event, PodObserved)
    assert observed.correlation == "uid-of-web-0"
    assert differences(known(pod()), news(version="99")) == []


def test_an_object_made_anew_under_the_same_name_is_deleted_first() -> None:
    drafts = differences(known(pod(uid="old")), news(uid="new"))
    assert events(drafts)[0] == PodDeleted(pod="shop/web-0", pod_uid="old")
    assert isinstance(drafts[1].event, PodObserved)


def test_what_is_gone_is_said_once_and_only_of_what_was_known() -> None:
    assert events(differences(known(pod()), {PLACE: None})) == [PodDeleted(pod="shop/web-0", pod_uid="uid-of-web-0")]
    assert differences(GatewayState(), {PLACE: None}) == []


def test_what_a_complete_list_does_not_name_is_gone() -> None:
    state = known(pod("web-0"), pod("web-1"))
    assert absent(state, "pods", {"shop/web-1"}) == [PLACE]


BODIES = st.sampled_from([None, pod(), pod(node="n1"), pod(uid="other"), pod(version="8")])


@holds_for(st.lists(BODIES, max_size=8))
def test_after_any_sightings_the_log_says_what_was_seen_last(sightings: list[dict[str, Any] | None]) -> None:
    """However sightings are coalesced: the digest of what the log knows is that of the last one."""
    log, state = Log(), GatewayState()
    for body in sightings:
        log.append("cluster", *differences(state, {PLACE: seen("pods", body) if body else None}))
        state = state_after(log.in_order([]))
    last = sightings[-1] if sightings else None
    assert differences(state, {PLACE: seen("pods", last) if last else None}) == []
    assert list(state.pods) == ([last["metadata"]["uid"]] if last else [])


def test_a_plain_object_is_observed_whole() -> None:
    body = {"metadata": {"name": "q", "namespace": "shop", "uid": "u"}, "spec": {"max": {"cpu": 4}}}
    resource = "elasticquotas.scheduling.sigs.k8s.io"
    (draft,) = differences(GatewayState(), {ObjectRef(resource, "shop/q"): seen(resource, body)})
    assert isinstance(draft.event, ObjectObserved)
    assert draft.event.object["spec"] == {"max": {"cpu": 4}}
