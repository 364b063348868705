"""Our own writes, late observations, and drift caused by another client."""

from typing import Any

import pytest
from msgspec.structs import replace

from services.gateway.effects.drift_tracker import RETRY_PAUSE_MAX_S, REWRITE_PAUSE_MAX_S, DriftTracker, newer
from services.gateway.effects.intent_types import ObjectRef
from services.gateway.effects.outcome_events import applied, failed
from services.gateway.kube_api.unused_field_removal import ObservedObject
from services.gateway.state import GatewayState
from shared.events import Cause, Draft
from shared.events.intents import FieldsDesired
from tests.support.gateway_objects import Log, node, seen, state_after

N1 = ObjectRef("nodes", "n1")
DESIRED = FieldsDesired(
    resource="nodes", name="n1", fields="batch", patch={"status": {"allocatable": {"kubernetes.io/batch-cpu": "1000m"}}}
)


def observation(batch_cpu: str, version: int) -> ObservedObject:
    body: dict[str, Any] = node(version=str(version))
    body["status"]["allocatable"]["kubernetes.io/batch-cpu"] = batch_cpu
    return seen("nodes", body)


@pytest.fixture
def written() -> tuple[GatewayState, Cause]:
    """Returns a State with an applied desired state, and its cause."""
    log = Log()
    cause = log.append("slo", DESIRED)
    log.append("cluster", Draft(applied(DESIRED), cause))
    return state_after(log.in_order([])), cause


def test_a_value_normalised_by_the_server_is_no_drift(written: tuple[GatewayState, Cause]) -> None:
    state, cause = written
    drift_tracker = DriftTracker()
    drift_tracker.wrote(cause, DESIRED, observation("1", 20), now_s=0)  # the server normalises 1000m to 1
    assert not drift_tracker.observed(state, N1, observation("1", 20), now_s=1)
    assert not drift_tracker.observed(state, N1, observation("1", 25), now_s=1)
    assert drift_tracker.drifted(1) == []


def test_an_observation_older_than_our_write_is_no_drift(written: tuple[GatewayState, Cause]) -> None:
    state, cause = written
    drift_tracker = DriftTracker()
    drift_tracker.wrote(cause, DESIRED, observation("1", 20), now_s=0)
    assert not drift_tracker.observed(state, N1, observation("500m", 19), now_s=1)
    assert drift_tracker.version(N1) == "20"


def test_another_value_in_a_newer_version_is_drift_until_it_is_rewritten(written: tuple[GatewayState, Cause]) -> None:
    state, cause = written
    drift_tracker = DriftTracker()
    drift_tracker.wrote(cause, DESIRED, observation("1", 20), now_s=0)
    assert drift_tracker.observed(state, N1, observation("7", 21), now_s=5)
    assert drift_tracker.drifted(5) == [cause]
    assert drift_tracker.version(N1) == "21"
    drift_tracker.wrote(cause, DESIRED, observation("1", 22), now_s=5)
    assert drift_tracker.drifted(5) == []


def test_a_change_during_our_write_is_detected() -> None:
    log = Log()
    cause = log.append("slo", DESIRED)
    state = state_after(log.in_order([]))
    drift_tracker = DriftTracker()
    drift_tracker.observed(
        state, N1, observation("7", 21), now_s=0
    )  # another client's write after ours (20), observed before our response
    drift_tracker.wrote(cause, DESIRED, observation("1", 20), now_s=0)
    assert drift_tracker.drifted(0) == [cause]


def test_after_a_restart_a_differing_object_is_written_again(written: tuple[GatewayState, Cause]) -> None:
    state, cause = written
    drift_tracker = DriftTracker()
    assert drift_tracker.observed(state, N1, observation("7", 21), now_s=0)
    assert drift_tracker.drifted(0) == [cause]
    assert not DriftTracker().observed(state, N1, observation("1000m", 21), now_s=0)


def test_rewrites_against_another_client_slow_down(written: tuple[GatewayState, Cause]) -> None:
    state, cause = written
    drift_tracker = DriftTracker()
    now_s, version, pauses = 0.0, 20, []
    for _ in range(10):
        drift_tracker.wrote(cause, DESIRED, observation("1", version), now_s)
        drift_tracker.observed(state, N1, observation("7", version + 1), now_s)
        began_s = now_s
        while not drift_tracker.drifted(now_s):
            now_s += 1
        pauses.append(now_s - began_s)
        version += 2
    assert pauses == [0, 1, 2, 4, 8, 16, 32, REWRITE_PAUSE_MAX_S, REWRITE_PAUSE_MAX_S, REWRITE_PAUSE_MAX_S]


def test_ended_desired_states_are_forgotten(written: tuple[GatewayState, Cause]) -> None:
    state, _cause = written
    drift_tracker = DriftTracker()
    drift_tracker.observed(state, N1, observation("7", 21), now_s=0)
    drift_tracker.forget_ended(GatewayState())
    assert drift_tracker.drifted(0) == []
    drift_tracker.deleted(N1)
    assert drift_tracker.version(N1) == ""


def given_up(*desired: FieldsDesired) -> tuple[GatewayState, list[Cause]]:
    """Returns a State with desired states that were given up, and their causes."""
    log = Log()
    causes = [log.append("slo", each) for each in desired]
    for cause, each in zip(causes, desired, strict=True):
        log.append("cluster", Draft(failed(each, "no answer"), cause))
    return state_after(log.in_order([])), causes


def test_tries_of_a_desired_state_that_was_given_up_slow_down_and_never_end() -> None:
    state, [cause] = given_up(DESIRED)
    drift_tracker, now_s, pauses = DriftTracker(), 0.0, []
    assert list(drift_tracker.to_retry(state, now_s)) == [cause]  # at once after a restart
    for _ in range(12):
        drift_tracker.not_written(cause, now_s)
        began_s = now_s
        while not list(drift_tracker.to_retry(state, now_s)):
            now_s += 0.25
        pauses.append(now_s - began_s)
    assert pauses[0] <= 1.25
    assert all(RETRY_PAUSE_MAX_S / 2 <= pause <= RETRY_PAUSE_MAX_S + 0.25 for pause in pauses[-6:])
    drift_tracker.wrote(cause, DESIRED, observation("1", 20), now_s)
    drift_tracker.not_written(cause, now_s)
    assert list(drift_tracker.to_retry(state, now_s + 1.25)) == [cause]


def test_of_one_object_the_first_that_was_given_up_is_tried_first() -> None:
    state, [first, _] = given_up(DESIRED, replace(DESIRED, fields="mid"))
    assert list(DriftTracker().to_retry(state, 0.0)) == [first]


def test_versions_are_compared_as_numbers() -> None:
    assert newer("1000", "999")
    assert not newer("999", "1000")
    assert newer("abc", "999")


def test_another_object_of_the_name_gets_neither_the_fields_nor_its_version() -> None:
    """The API server does not compare the uid in a patch of a custom resource's status: the write would succeed."""
    log, desired = Log(), replace(DESIRED, uid="first")
    cause = log.append("slo", desired)
    log.append("cluster", Draft(applied(desired), cause))
    state = state_after(log.in_order([]))
    drift_tracker = DriftTracker()
    drift_tracker.wrote(cause, desired, observation("1", 20)._replace(uid="first"), now_s=0)
    assert not drift_tracker.observed(state, N1, observation("7", 30)._replace(uid="second"), now_s=5)
    assert drift_tracker.drifted(1000) == []
    assert (drift_tracker.version(N1), drift_tracker.version(N1, "second")) == ("30", "30")
    assert drift_tracker.version(N1, "first") == ""
