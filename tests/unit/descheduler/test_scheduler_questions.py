"""Questions to the scheduler about a waiting unit: a bounded number of them, and none about it again at once."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from services.descheduler import silence_of_scheduler
from services.descheduler.framework.cycle import CyclePlan
from services.descheduler.scheduler_questions import MOST_QUESTIONS, SchedulerQuestions
from services.descheduler.settings import DecisionSettings, DeschedulerSettings
from shared.bus import NoResponse
from shared.domain.move_destinations import DestinationsRequest, DestinationsResponse, Move
from shared.domain.moves_for_waiting_unit import SUBJECT, MovesForUnitRequest, MovesForUnitResponse, PlannedMove
from shared.events.descheduling import EvictionCaseOpened
from shared.kube.instants import SECOND
from tests.unit.descheduler.small_cluster import SmallCluster
from tests.unit.descheduler.test_defragment import cluster_of


class Scheduler:
    """A scheduler on the bus that does not keep the pods which should stay: it names others that are not there."""

    def __init__(self, cluster: SmallCluster, *, plans: bool = True) -> None:
        self.requests: list[MovesForUnitRequest] = []
        self._plans = plans
        runtime: Any = SimpleNamespace(state=cluster.state, settings=DeschedulerSettings(), bus=self)
        self._questions, self._cluster = SchedulerQuestions(runtime), cluster

    async def request(self, subject: str, data: bytes, *, deadline_s: float) -> bytes:
        assert (subject, deadline_s) == (SUBJECT, DeschedulerSettings().unit_moves_timeout_s)
        self.requests.append(msgspec.json.decode(data, type=MovesForUnitRequest))
        if not self._plans:
            return msgspec.json.encode(MovesForUnitResponse(problem="no move helps"))
        uid = f"unknown-{len(self.requests)}"
        return msgspec.json.encode(MovesForUnitResponse(moves=(PlannedMove(uid, f"d/{uid}", "a", "b"),)))

    def opened(self, case: EvictionCaseOpened) -> None:
        """A cycle has opened a case."""
        self._questions.opened([case], self._cluster.now_ns)

    def plan(self, after_s: float = 0.0) -> CyclePlan:
        """Plans a cycle."""
        configuration = self._cluster.state.configuration
        assert configuration is not None
        now_ns = self._cluster.now_ns + int(after_s * SECOND)
        return asyncio.run(self._questions.plan(configuration, DecisionSettings(), now_ns))


def test_a_cycle_has_a_bounded_number_of_questions_and_names_all_pods_that_stay() -> None:
    scheduler = Scheduler(cluster_of())
    assert not any(case.chosen for case in scheduler.plan().cases)
    assert len(scheduler.requests) == MOST_QUESTIONS
    assert scheduler.requests[-1].fixed == ("unknown-1", "unknown-2", "unknown-3")


def test_a_unit_without_a_plan_is_planned_again_after_a_minute() -> None:
    scheduler = Scheduler(cluster_of(), plans=False)
    for after_s, count in ((0.0, 1), (59.0, 1), (60.0, 2), (61.0, 2), (0.0, 3)):  # the clock is set back at the end
        scheduler.plan(after_s)
        assert len(scheduler.requests) == count, after_s


class SilentBus:
    """A scheduler that does not answer until it does; the time of a deadline passes at once."""

    def __init__(self) -> None:
        self.answers = False
        self.questions: list[int] = []

    async def request(self, subject: str, data: bytes, *, deadline_s: float) -> bytes:
        moves = len(msgspec.json.decode(data, type=DestinationsRequest).moves)
        self.questions.append(moves)
        await asyncio.sleep(0)
        if not self.answers:
            raise NoResponse(subject, deadline_s)
        return msgspec.json.encode(DestinationsResponse(nodes={"a5": "b"} if moves else {}))


def test_a_silent_scheduler_gets_one_question_and_the_next_when_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence_of_scheduler, "PAUSE_S", 0.0)
    bus = SilentBus()
    runtime: Any = SimpleNamespace(state=None, settings=DeschedulerSettings(), bus=bus)
    questions = SchedulerQuestions(runtime)

    async def passes() -> None:
        first = await questions.destinations((Move("a5"),))
        assert first.fault == "the scheduler did not answer in time"
        for _ in range(20):  # passes of the loop: none of them waits for the scheduler
            began = len(bus.questions)
            assert (await questions.destinations((Move("a5"),))).fault == "the scheduler does not answer"
            assert len(bus.questions) == began
            await asyncio.sleep(0)
        assert bus.questions[0] == 1
        assert set(bus.questions[1:]) == {0}
        bus.answers = True
        while (found := await questions.destinations((Move("a5"),))).fault:
            await asyncio.sleep(0)
        assert found.nodes == {"a5": "b"}
        bus.answers = False
        await questions.destinations((Move("a5"),))
        await questions.stop()
        ended = len(bus.questions)
        await asyncio.sleep(0)
        assert len(bus.questions) == ended
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(passes())


def test_a_unit_is_planned_as_soon_as_a_silent_scheduler_answers_again() -> None:
    cluster = cluster_of()
    bus = SilentBus()
    runtime: Any = SimpleNamespace(state=cluster.state, settings=DeschedulerSettings(), bus=bus)
    questions, configuration = SchedulerQuestions(runtime), cluster.state.configuration
    assert configuration is not None

    async def cycles() -> None:
        await questions.destinations((Move("a5"),))
        await questions.plan(configuration, DecisionSettings(), cluster.now_ns)
        await questions.stop()
        units: list[str] = []

        async def request(subject: str, data: bytes, *, deadline_s: float) -> bytes:
            units.append(msgspec.json.decode(data, type=MovesForUnitRequest).unit)
            raise NoResponse(subject, deadline_s)

        bus.request = request  # type: ignore[method-assign]
        await questions.plan(configuration, DecisionSettings(), cluster.now_ns + SECOND)
        await questions.stop()
        assert units == ["default/train"]

    asyncio.run(cycles())


def test_a_unit_for_which_no_pod_could_leave_rests_for_a_minute() -> None:
    scheduler, case = Scheduler(cluster_of(), plans=False), cluster_of().cycle()
    assert case is not None
    scheduler.opened(replace(case, victims=()))
    for after_s, count in ((59.0, 0), (60.0, 1)):
        scheduler.plan(after_s)
        assert len(scheduler.requests) == count
