"""Our own writes, late observations, and drift caused by another client."""

from typing import Any

import pytest

from services.gateway.effects.intents import ObjectRef
from services.gateway.effects.outcomes import applied
from services.gateway.effects.write_tracker import REWRITE_PAUSE_MAX_S, WriteTracker, newer
from services.gateway.kube_api.field_filter import ObservedObject
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
    write_tracker = WriteTracker()
    write_tracker.wrote(cause, DESIRED, observation("1", 20), now_s=0)  # the server normalises 1000m to 1
    assert not write_tracker.observed(state, N1, observation("1", 20), now_s=1)
    assert not write_tracker.observed(state, N1, observation("1", 25), now_s=1)
    assert write_tracker.drifted(1) == []


def test_an_observation_older_than_our_write_is_no_drift(written: tuple[GatewayState, Cause]) -> None:
    state, cause = written
    write_tracker = WriteTracker()
    write_tracker.wrote(cause, DESIRED, observation("1", 20), now_s=0)
    assert not write_tracker.observed(state, N1, observation("500m", 19), now_s=1)
    assert write_tracker.version(N1) == "20"


def test_another_value_in_a_newer_version_is_drift_until_it_is_rewritten(written: tuple[GatewayState, Cause]) -> None:
    state, cause = written
    write_tracker = WriteTracker()
    write_tracker.wrote(cause, DESIRED, observation("1", 20), now_s=0)
    assert write_tracker.observed(state, N1, observation("7", 21), now_s=5)
    assert write_tracker.drifted(5) == [cause]
    assert write_tracker.version(N1) == "21"
    write_tracker.wrote(cause, DESIRED, observation("1", 22), now_s=5)
    assert write_tracker.drifted(5) == []


def test_a_change_during_our_write_is_detected() -> None:
    log = Log()
    cause = log.append("slo", DESIRED)
    state = state_after(log.in_order([]))
    write_tracker = WriteTracker()
    write_tracker.observed(
        state, N1, observation("7", 21), now_s=0
    )  # another client's write after ours (20), observed before our response
    write_tracker.wrote(cause, DESIRED, observation("1", 20), now_s=0)
    assert write_tracker.drifted(0) == [cause]


def test_after_a_restart_a_differing_object_is_written_again(written: tuple[GatewayState, Cause]) -> None:
    state, cause = written
    write_tracker = WriteTracker()
    assert write_tracker.observed(state, N1, observation("7", 21), now_s=0)
    assert write_tracker.drifted(0) == [cause]
    assert not WriteTracker().observed(state, N1, observation("1000m", 21), now_s=0)


def test_rewrites_against_another_client_slow_down(written: tuple[GatewayState, Cause]) -> None:
    state, cause = written
    write_tracker = WriteTracker()
    now_s, version, pauses = 0.0, 20, []
    for _ in range(10):
        write_tracker.wrote(cause, DESIRED, observation("1", version), now_s)
        write_tracker.observed(state, N1, observation("7", version + 1), now_s)
        began_s = now_s
        while not write_tracker.drifted(now_s):
            now_s += 1
        pauses.append(now_s - began_s)
        version += 2
    assert pauses == [0, 1, 2, 4, 8, 16, 32, REWRITE_PAUSE_MAX_S, REWRITE_PAUSE_MAX_S, REWRITE_PAUSE_MAX_S]


def test_ended_desired_states_are_forgotten(written: tuple[GatewayState, Cause]) -> None:
    state, _cause = written
    write_tracker = WriteTracker()
    write_tracker.observed(state, N1, observation("7", 21), now_s=0)
    write_tracker.forget_ended(GatewayState())
    assert write_tracker.drifted(0) == []
    write_tracker.deleted(N1)
    assert write_tracker.version(N1) == ""


def test_versions_are_compared_as_numbers() -> None:
    assert newer("1000", "999")
    assert not newer("999", "1000")
    assert newer("abc", "999")
