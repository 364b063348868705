"""Our own echo, a late sighting, and drift by another hand."""

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
LEVEL = FieldsDesired(
    resource="nodes", name="n1", fields="batch", patch={"status": {"allocatable": {"kubernetes.io/batch-cpu": "1000m"}}}
)


def sighting(batch_cpu: str, version: int) -> ObservedObject:
    body: dict[str, Any] = node(version=str(version))
    body["status"]["allocatable"]["kubernetes.io/batch-cpu"] = batch_cpu
    return seen("nodes", body)


@pytest.fixture
def held() -> tuple[GatewayState, Cause]:
    """A level that was written."""
    log = Log()
    cause = log.append("slo", LEVEL)
    log.append("cluster", Draft(applied(LEVEL), cause))
    return state_after(log.in_order([])), cause


def test_what_the_server_made_of_our_write_is_no_drift(held: tuple[GatewayState, Cause]) -> None:
    state, cause = held
    write_tracker = WriteTracker()
    write_tracker.wrote(cause, LEVEL, sighting("1", 20), now_s=0)  # the server's way to write 1000m
    assert not write_tracker.observed(state, N1, sighting("1", 20), now_s=1)
    assert not write_tracker.observed(state, N1, sighting("1", 25), now_s=1)
    assert write_tracker.drifted(1) == []


def test_a_sighting_older_than_our_write_is_no_drift(held: tuple[GatewayState, Cause]) -> None:
    state, cause = held
    write_tracker = WriteTracker()
    write_tracker.wrote(cause, LEVEL, sighting("1", 20), now_s=0)
    assert not write_tracker.observed(state, N1, sighting("500m", 19), now_s=1)
    assert write_tracker.version(N1) == "20"


def test_another_value_in_a_newer_version_is_drift_until_it_is_put_right(held: tuple[GatewayState, Cause]) -> None:
    state, cause = held
    write_tracker = WriteTracker()
    write_tracker.wrote(cause, LEVEL, sighting("1", 20), now_s=0)
    assert write_tracker.observed(state, N1, sighting("7", 21), now_s=5)
    assert write_tracker.drifted(5) == [cause]
    assert write_tracker.version(N1) == "21"
    write_tracker.wrote(cause, LEVEL, sighting("1", 22), now_s=5)
    assert write_tracker.drifted(5) == []


def test_a_change_that_comes_while_our_write_is_under_way_is_not_missed() -> None:
    log = Log()
    cause = log.append("slo", LEVEL)
    state = state_after(log.in_order([]))
    write_tracker = WriteTracker()
    write_tracker.observed(
        state, N1, sighting("7", 21), now_s=0
    )  # written by another after ours (20), heard before our answer
    write_tracker.wrote(cause, LEVEL, sighting("1", 20), now_s=0)
    assert write_tracker.drifted(0) == [cause]


def test_after_a_restart_what_disagrees_with_the_level_is_written_again(held: tuple[GatewayState, Cause]) -> None:
    state, cause = held
    write_tracker = WriteTracker()
    assert write_tracker.observed(state, N1, sighting("7", 21), now_s=0)
    assert write_tracker.drifted(0) == [cause]
    assert not WriteTracker().observed(state, N1, sighting("1000m", 21), now_s=0)


def test_a_fight_with_another_writer_slows_down(held: tuple[GatewayState, Cause]) -> None:
    state, cause = held
    write_tracker = WriteTracker()
    now_s, version, pauses = 0.0, 20, []
    for _ in range(10):
        write_tracker.wrote(cause, LEVEL, sighting("1", version), now_s)
        write_tracker.observed(state, N1, sighting("7", version + 1), now_s)
        began_s = now_s
        while not write_tracker.drifted(now_s):
            now_s += 1
        pauses.append(now_s - began_s)
        version += 2
    assert pauses == [0, 1, 2, 4, 8, 16, 32, REWRITE_PAUSE_MAX_S, REWRITE_PAUSE_MAX_S, REWRITE_PAUSE_MAX_S]


def test_levels_that_ended_are_forgotten(held: tuple[GatewayState, Cause]) -> None:
    state, _cause = held
    write_tracker = WriteTracker()
    write_tracker.observed(state, N1, sighting("7", 21), now_s=0)
    write_tracker.forget_ended(GatewayState())
    assert write_tracker.drifted(0) == []
    write_tracker.deleted(N1)
    assert write_tracker.version(N1) == ""


def test_versions_are_compared_as_numbers() -> None:
    assert newer("1000", "999")
    assert not newer("999", "1000")
    assert newer("abc", "999")
