"""The scheduler's answer about the moves that admit a waiting unit, and what each side takes from the other."""

import msgspec
import pytest

from services.scheduler.extender_server.answer_moves_for_waiting_unit import moves_for_unit
from shared.domain.moves_for_waiting_unit import (
    MOST_FIXED,
    BadUnitMessage,
    MovesForUnitRequest,
    MovesForUnitResponse,
    PlannedMove,
    decode_request,
    decode_response,
)
from tests.support.scheduling_world import World, pod
from tests.unit.scheduler.test_moves_that_admit_unit import running, world_of


def fragmented() -> World:
    """Three nodes of 4 cores with 2 free on each, and a pod that needs 3."""
    pods = [running(f"{host}{number}", host) for host in "abc" for number in range(2)]
    return world_of("a", "b", "c", pods=[*pods, pod("large", cpu="3", memory=None)])


def asked(world: World, unit: str, most: int = 4, *fixed: str) -> MovesForUnitResponse:
    return moves_for_unit(world.indexed(), MovesForUnitRequest(unit, most, fixed), world.now_ns)


def name_of(world: World, uid: str) -> str:
    return world.view.pods[uid].name


def test_one_move_admits_the_waiting_pod_and_the_answer_survives_the_wire() -> None:
    world = fragmented()
    request = MovesForUnitRequest(name_of(world, "large"), 4)
    found = moves_for_unit(world.indexed(), request, world.now_ns)
    (move,) = found.moves
    assert found.nodes == {"large": move.source}
    assert decode_response(msgspec.json.encode(found), request) == found


def test_pods_that_the_descheduler_keeps_stay_and_the_next_best_ones_move() -> None:
    world = fragmented()
    unit = name_of(world, "large")
    (first,) = asked(world, unit).moves
    on_source = [uid for uid, each in world.view.pods.items() if each.node == first.source]
    (second,) = asked(world, unit, 4, *on_source).moves
    assert second.source != first.source
    everyone = [uid for uid, each in world.view.pods.items() if each.node]
    found = asked(world, unit, 4, *everyone)
    assert not found.moves
    assert "6 kept by the descheduler" in found.problem


def test_a_plan_of_more_moves_than_allowed_is_none() -> None:
    world = fragmented()
    world.add_pod(pod("whole", cpu="4", memory=None))
    world.read()
    unit = name_of(world, "whole")
    assert len(asked(world, unit, 2).moves) == 2
    found = asked(world, unit, 1)
    assert not found.moves
    assert found.problem == "it takes 2 moves; at most 1 are allowed"


def test_a_unit_that_does_not_wait_has_a_problem_and_no_moves() -> None:
    world = fragmented()
    found = asked(world, name_of(world, "a0"))
    assert not found.moves
    assert "runs on a" in found.problem


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "no request"),
        (b'{"unit":"d/x","most_moves":0}', "allow at least one"),
        (msgspec.json.encode(MovesForUnitRequest("d/x", 1, ("u",) * (MOST_FIXED + 1))), f"at most {MOST_FIXED}"),
    ],
)
def test_a_request_that_asks_for_too_much_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadUnitMessage, match=why):
        decode_request(data)


@pytest.mark.parametrize(
    ("moves", "why"),
    [
        ((PlannedMove("p", "d/p", "a", "b"), PlannedMove("q", "d/q", "a", "b")), "1 were allowed"),
        ((PlannedMove("kept", "d/kept", "a", "b"),), "was to stay"),
        ((PlannedMove("p", "d/p", "a", "a"),), "has no other node"),
        ((PlannedMove("p", "d/p", "a", ""),), "has no other node"),
    ],
)
def test_a_response_that_the_request_did_not_allow_is_refused(moves: tuple[PlannedMove, ...], why: str) -> None:
    request = MovesForUnitRequest("d/x", 1, ("kept",))
    with pytest.raises(BadUnitMessage, match=why):
        decode_response(msgspec.json.encode(MovesForUnitResponse(moves=moves)), request)
