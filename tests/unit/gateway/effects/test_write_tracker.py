"""Our own echo, a late sighting, and drift by another hand."""

from typing import Any

import pytest

from services.gateway.effects.intents import Place
from services.gateway.effects.outcomes import written
from services.gateway.effects.write_tracker import PATIENCE_S, Echoes, newer
from services.gateway.state import GatewayState
from services.gateway.watch.field_filter import Seen
from shared.events import Cause, Draft
from shared.events.intents import FieldsDesired
from tests.support.gateway_objects import Log, node, seen, state_after

N1 = Place("nodes", "n1")
LEVEL = FieldsDesired(
    resource="nodes", name="n1", fields="batch", patch={"status": {"allocatable": {"kubernetes.io/batch-cpu": "1000m"}}}
)


def sighting(batch_cpu: str, version: int) -> Seen:
    body: dict[str, Any] = node(version=str(version))
    body["status"]["allocatable"]["kubernetes.io/batch-cpu"] = batch_cpu
    return seen("nodes", body)


@pytest.fixture
def held() -> tuple[GatewayState, Cause]:
    """A level that was written."""
    log = Log()
    cause = log.append("slo", LEVEL)
    log.append("cluster", Draft(written(LEVEL), cause))
    return state_after(log.in_order([])), cause


def test_what_the_server_made_of_our_write_is_no_drift(held: tuple[GatewayState, Cause]) -> None:
    state, cause = held
    echoes = Echoes()
    echoes.wrote(cause, LEVEL, sighting("1", 20), now_s=0)  # the server's way to write 1000m
    assert not echoes.saw(state, N1, sighting("1", 20), now_s=1)
    assert not echoes.saw(state, N1, sighting("1", 25), now_s=1)
    assert echoes.drifted(1) == []


def test_a_sighting_older_than_our_write_is_no_drift(held: tuple[GatewayState, Cause]) -> None:
    state, cause = held
    echoes = Echoes()
    echoes.wrote(cause, LEVEL, sighting("1", 20), now_s=0)
    assert not echoes.saw(state, N1, sighting("500m", 19), now_s=1)
    assert echoes.version(N1) == "20"


def test_another_value_in_a_newer_version_is_drift_until_it_is_put_right(held: tuple[GatewayState, Cause]) -> None:
    state, cause = held
    echoes = Echoes()
    echoes.wrote(cause, LEVEL, sighting("1", 20), now_s=0)
    assert echoes.saw(state, N1, sighting("7", 21), now_s=5)
    assert echoes.drifted(5) == [cause]
    assert echoes.version(N1) == "21"
    echoes.wrote(cause, LEVEL, sighting("1", 22), now_s=5)
    assert echoes.drifted(5) == []


def test_a_change_that_comes_while_our_write_is_under_way_is_not_missed() -> None:
    log = Log()
    cause = log.append("slo", LEVEL)
    state = state_after(log.in_order([]))
    echoes = Echoes()
    echoes.saw(state, N1, sighting("7", 21), now_s=0)  # written by another after ours (20), heard before our answer
    echoes.wrote(cause, LEVEL, sighting("1", 20), now_s=0)
    assert echoes.drifted(0) == [cause]


def test_after_a_restart_what_disagrees_with_the_level_is_written_again(held: tuple[GatewayState, Cause]) -> None:
    state, cause = held
    echoes = Echoes()
    assert echoes.saw(state, N1, sighting("7", 21), now_s=0)
    assert echoes.drifted(0) == [cause]
    assert not Echoes().saw(state, N1, sighting("1000m", 21), now_s=0)


def test_a_fight_with_another_writer_slows_down(held: tuple[GatewayState, Cause]) -> None:
    state, cause = held
    echoes = Echoes()
    now_s, version, pauses = 0.0, 20, []
    for _ in range(10):
        echoes.wrote(cause, LEVEL, sighting("1", version), now_s)
        echoes.saw(state, N1, sighting("7", version + 1), now_s)
        began_s = now_s
        while not echoes.drifted(now_s):
            now_s += 1
        pauses.append(now_s - began_s)
        version += 2
    assert pauses == [0, 1, 2, 4, 8, 16, 32, PATIENCE_S, PATIENCE_S, PATIENCE_S]


def test_levels_that_ended_are_forgotten(held: tuple[GatewayState, Cause]) -> None:
    state, _cause = held
    echoes = Echoes()
    echoes.saw(state, N1, sighting("7", 21), now_s=0)
    echoes.keep(GatewayState())
    assert echoes.drifted(0) == []
    echoes.gone(N1)
    assert echoes.version(N1) == ""


def test_versions_are_compared_as_numbers() -> None:
    assert newer("1000", "999")
    assert not newer("999", "1000")
    assert newer("abc", "999")
