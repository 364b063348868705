"""The numbers written to quota objects, and when."""

import json
from typing import Any

from services.quota_ledger.decide.quota_status import statuses
from services.quota_ledger.state.ledger_state import LedgerState
from shared.events import RecordedEvent
from shared.events.cluster import ObjectObserved, PodDeleted
from shared.events.intents import FieldsDesired
from shared.kube.elastic_quota import PREFIX
from shared.kube.instants import SECOND
from tests.support.quota_logs import Logs, pod, quota, two_teams


def patched(logs: Logs, **limits: Any) -> dict[str, FieldsDesired]:
    """Folds the patches of one append: name of the object -> patch."""
    found = {}
    for draft in statuses(logs.state, logs.now_ns, **limits):
        assert isinstance(draft.event, FieldsDesired)
        logs.state.apply(RecordedEvent("quota", logs.state.positions["quota"] + 1, draft.event, logs.now_ns))
        found[draft.event.name] = draft.event
    return found


def annotations(level: FieldsDesired) -> dict[str, Any]:
    return {key.removeprefix(PREFIX): json.loads(text) for key, text in level.patch["metadata"]["annotations"].items()}


def test_an_object_has_the_runtime_request_and_use_of_its_quota() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "8", at="n1"), pod("p2", "a", "500m"))
    level = patched(logs)["quotas/a"]
    assert (level.resource, level.uid, level.subresource) == ("elasticquotas.scheduling.sigs.k8s.io", "a", "")
    assert annotations(level) == {
        "runtime": {"cpu": "8500m"},
        "request": {"cpu": "8500m"},
        "child-request": {"cpu": "8500m"},
    }
    assert level.patch["status"] == {"used": {"cpu": "8"}}


def test_nothing_is_written_twice_and_no_zero_at_first() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "8", at="n1"))
    assert set(patched(logs)) == {"quotas/a"}  # b has only zeros, the root and the reserved groups have no objects
    logs.now_ns += 10 * SECOND
    assert patched(logs) == {}


def test_a_resource_no_longer_used_is_written_as_zero() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "8", at="n1"))
    patched(logs)
    logs.append("cluster", PodDeleted(pod="ns/p1", pod_uid="p1"))
    logs.now_ns += SECOND
    level = patched(logs)["quotas/a"]
    assert level.patch["status"] == {"used": {"cpu": "0"}}
    assert annotations(level)["runtime"] == {"cpu": "0"}


def test_an_object_is_patched_once_a_second_with_the_newest_numbers() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "1", at="n1"))
    patched(logs)
    logs.append("cluster", pod("p2", "a", "2", at="n1"))
    assert patched(logs) == {}
    logs.append("cluster", pod("p3", "a", "4", at="n1"))
    logs.now_ns += SECOND
    assert patched(logs)["quotas/a"].patch["status"] == {"used": {"cpu": "7"}}


def test_one_append_patches_a_limited_number_of_objects_and_the_next_the_rest() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "1", at="n1"), pod("p2", "b", "1", at="n1"))
    assert sorted([*patched(logs, max_objects=1), *patched(logs, max_objects=1)]) == ["quotas/a", "quotas/b"]


def test_an_object_that_is_created_again_is_patched_again() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "1", at="n1"))
    before = patched(logs)["quotas/a"]
    anew = quota("a", "5", "10")
    anew.object["metadata"]["uid"] = "another"
    logs.append("cluster", anew)
    assert patched(logs)["quotas/a"].patch == before.patch


def test_a_parent_has_the_use_of_its_children() -> None:
    logs = two_teams()
    logs.append("cluster", quota("dept", "0", "10", is_parent=True), quota("c", "0", "10", parent="dept"))
    logs.append("cluster", pod("p1", "c", "1", at="n1"))
    assert patched(logs)["quotas/dept"].patch["status"] == {"used": {"cpu": "1"}}


def test_a_restart_repeats_nothing() -> None:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "8", at="n1"))
    patched(logs)
    again = LedgerState()
    again.restore(logs.state.encode())
    assert statuses(again, logs.now_ns + SECOND) == []
    assert again.encode() == logs.state.encode()


def overwritten(name: str, **texts: str) -> ObjectObserved:
    """A team's object with numbers that others wrote."""
    event = quota(name, "5", "10")
    event.object["metadata"]["annotations"] = {PREFIX + key.replace("_", "-"): text for key, text in texts.items()}
    return event


def test_what_a_webhook_noted_for_a_pod_that_never_came_is_taken_back() -> None:
    logs = two_teams()
    logs.append("cluster", overwritten("a", child_request='{"cpu":"2"}'))
    assert annotations(patched(logs)["quotas/a"]) == {"child-request": {"cpu": "0"}}
    logs.append("cluster", overwritten("a", child_request='{"cpu":"0"}'))
    logs.now_ns += SECOND
    assert patched(logs) == {}


def test_numbers_that_others_left_or_that_cannot_be_read_become_ours() -> None:
    logs = two_teams()
    left = overwritten("a", runtime='{"cpu":"7"}', non_preemptible_used='{"cpu":"1"}', request="lots")
    left.object["status"] = {"used": {"cpu": "7"}}
    logs.append("cluster", left, pod("p1", "a", "1", at="n1"))
    level = patched(logs)["quotas/a"]
    assert annotations(level) == {
        "runtime": {"cpu": "1"},
        "request": {"cpu": "1"},
        "child-request": {"cpu": "1"},
        "non-preemptible-used": {"cpu": "0"},
    }
    assert level.patch["status"] == {"used": {"cpu": "1"}}


def test_numbers_present_on_an_object_survive_a_restart() -> None:
    logs = two_teams()
    logs.append("cluster", overwritten("a", child_request='{"cpu":"2"}'))
    again = LedgerState()
    again.restore(logs.state.encode())
    assert again.encode() == logs.state.encode()
    [draft] = statuses(again, logs.now_ns)
    assert isinstance(draft.event, FieldsDesired)
    assert annotations(draft.event) == {"child-request": {"cpu": "0"}}
