"""The scheduler's answer about the moves that admit a waiting unit, and what each side takes from the other."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from services.scheduler.explain.moves_that_admit_unit import at_once
from services.scheduler.extender_server.answer_moves_for_waiting_unit import moves_for_unit
from services.scheduler.extender_server.unit_moves_answers import UnitMovesAnswers
from shared.domain.moves_for_waiting_unit import (
    MOST_FIXED,
    BadUnitMessage,
    MovesForUnitRequest,
    MovesForUnitResponse,
    PlannedMove,
    decode_request,
    decode_response,
)
from shared.kube.elastic_quota import QUOTA_NAME
from tests.support.scheduling_world import World, pod
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota
from tests.unit.scheduler.test_extender_nominated import extender, nominated_on_a
from tests.unit.scheduler.test_moves_that_admit_unit import running, world_of


def fragmented() -> World:
    """Three nodes of 4 cores with 2 free on each, and a pod that needs 3."""
    pods = [running(f"{host}{number}", host) for host in "abc" for number in range(2)]
    return world_of("a", "b", "c", pods=[*pods, pod("large", cpu="3", memory=None)])


def answer_to(world: World, unit: str, most: int = 4, *fixed: str) -> MovesForUnitResponse:
    return at_once(moves_for_unit(world.indexed(), MovesForUnitRequest(unit, most, fixed), world.now_ns))


def name_of(world: World, uid: str) -> str:
    return world.view.pods[uid].name


def test_one_move_admits_the_waiting_pod_and_the_answer_survives_the_wire() -> None:
    world = fragmented()
    request = MovesForUnitRequest(name_of(world, "large"), 4)
    found = at_once(moves_for_unit(world.indexed(), request, world.now_ns))
    (move,) = found.moves
    assert found.nodes == {"large": move.source}
    assert decode_response(msgspec.json.encode(found), request) == found


def test_pods_that_the_descheduler_keeps_stay_and_the_next_best_ones_move() -> None:
    world = fragmented()
    unit = name_of(world, "large")
    (first,) = answer_to(world, unit).moves
    on_source = [uid for uid, each in world.view.pods.items() if each.node == first.source]
    (second,) = answer_to(world, unit, 4, *on_source).moves
    assert second.source != first.source
    everyone = [uid for uid, each in world.view.pods.items() if each.node]
    found = answer_to(world, unit, 4, *everyone)
    assert not found.moves
    assert "6 kept by the descheduler" in found.problem


def test_a_plan_of_more_moves_than_allowed_is_none() -> None:
    world = fragmented()
    world.add_pod(pod("whole", cpu="4", memory=None))
    world.read()
    unit = name_of(world, "whole")
    assert len(answer_to(world, unit, 2).moves) == 2
    found = answer_to(world, unit, 1)
    assert not found.moves
    assert found.problem == "it takes 2 moves; at most 1 are allowed"


def test_a_unit_that_does_not_wait_has_a_problem_and_no_moves() -> None:
    world = fragmented()
    found = answer_to(world, name_of(world, "a0"))
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
def test_a_request_for_too_much_is_refused(data: bytes, why: str) -> None:
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


def test_a_unit_that_waits_for_its_quota_or_for_victims_that_leave_gets_no_moves() -> None:
    nominated = nominated_on_a()
    name = name_of(nominated, "vip")
    assert answer_to(nominated, name).problem == f"pods leave a for {name} already"
    teams = Teams(quota("team", "2", "2"))
    teams.add_pod(pod("large", labels={QUOTA_NAME: "team"}, cpu="3"))
    teams.read()
    teams.cycle()
    name = name_of(teams, "large")
    assert answer_to(teams, name).problem == f"{name} waits for its quota: koord why pod"


class Requested:
    """A request on the bus, with its response."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.response: MovesForUnitResponse | None = None

    async def respond(self, data: bytes) -> None:
        self.response = msgspec.json.decode(data, type=MovesForUnitResponse)


def answered(world: World, data: bytes, longest_s: float = 2.0) -> tuple[MovesForUnitResponse, int]:
    """Returns the answer of the leading scheduler, and how often another task ran meanwhile."""
    turns = 0

    async def run() -> MovesForUnitResponse:
        nonlocal turns
        served, request = extender(world), Requested(data)
        answer = asyncio.ensure_future(UnitMovesAnswers(served, longest_s).answer(request))  # type: ignore[arg-type]
        while not answer.done():
            turns += 1
            await asyncio.sleep(0)
        await answer
        assert request.response is not None
        assert not served.turn.locked()
        return request.response

    return asyncio.run(run()), turns


def test_other_tasks_of_the_scheduler_run_during_the_search() -> None:
    world = fragmented()
    request = MovesForUnitRequest(name_of(world, "large"), 4)
    found, turns = answered(world, msgspec.json.encode(request))
    assert found.moves == answer_to(world, request.unit).moves
    assert found.seen == world.view.positions
    everyone = tuple(uid for uid, each in world.view.pods.items() if each.node and each.node != "c")
    more = replace(request, fixed=everyone)
    assert turns > 2
    assert answered(world, msgspec.json.encode(more))[0].moves[0].source == "c"


def test_a_search_that_takes_too_long_and_a_request_that_cannot_be_read_have_a_fault() -> None:
    world = fragmented()
    request = msgspec.json.encode(MovesForUnitRequest(name_of(world, "large"), 4))
    assert "given up" in answered(world, request, longest_s=0.0)[0].fault
    assert "no request" in answered(world, b"{")[0].fault
