"""Observations to append: the difference between observed objects and the log."""

from typing import Any

from hypothesis import given as holds_for
from hypothesis import strategies as st

from services.gateway.effects.intent_types import ObjectRef
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


def test_a_new_object_is_recorded_and_an_unchanged_one_is_not() -> None:
    (observed,) = differences(GatewayState(), news())
    assert isinstance(observed.event, PodObserved)
    assert observed.correlation == "uid-of-web-0"
    assert differences(known(pod()), news(version="99")) == []


def test_the_deletion_of_a_recreated_object_is_recorded_first() -> None:
    drafts = differences(known(pod(uid="old")), news(uid="new"))
    assert events(drafts)[0] == PodDeleted(pod="shop/web-0", pod_uid="old")
    assert isinstance(drafts[1].event, PodObserved)


def test_a_deletion_is_recorded_once_and_only_for_known_objects() -> None:
    assert events(differences(known(pod()), {PLACE: None})) == [PodDeleted(pod="shop/web-0", pod_uid="uid-of-web-0")]
    assert differences(GatewayState(), {PLACE: None}) == []


def test_objects_missing_in_a_complete_list_are_deleted() -> None:
    state = known(pod("web-0"), pod("web-1"))
    assert absent(state, "pods", {"shop/web-1"}) == [PLACE]


BODIES = st.sampled_from([None, pod(), pod(node="n1"), pod(uid="other"), pod(version="8")])


@holds_for(st.lists(BODIES, max_size=8))
def test_after_any_observations_the_log_has_the_last_one(observations: list[dict[str, Any] | None]) -> None:
    """However observations are merged, the digest in the State is that of the last one."""
    log, state = Log(), GatewayState()
    for body in observations:
        log.append("cluster", *differences(state, {PLACE: seen("pods", body) if body else None}))
        state = state_after(log.in_order([]))
    last = observations[-1] if observations else None
    assert differences(state, {PLACE: seen("pods", last) if last else None}) == []
    assert [pod.uid for pod in state.pods.values()] == ([last["metadata"]["uid"]] if last else [])


def test_an_untyped_object_is_recorded_whole() -> None:
    body = {"metadata": {"name": "q", "namespace": "shop", "uid": "u"}, "spec": {"max": {"cpu": 4}}}
    resource = "elasticquotas.scheduling.sigs.k8s.io"
    (draft,) = differences(GatewayState(), {ObjectRef(resource, "shop/q"): seen(resource, body)})
    assert isinstance(draft.event, ObjectObserved)
    assert draft.event.object["spec"] == {"max": {"cpu": 4}}
