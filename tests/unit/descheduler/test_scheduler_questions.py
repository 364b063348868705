"""Questions to the scheduler about a waiting unit: a bounded number of them, and none about it again at once."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from services.descheduler.framework.cycle import CyclePlan
from services.descheduler.scheduler_questions import MOST_QUESTIONS, SchedulerQuestions
from services.descheduler.settings import DecisionSettings, DeschedulerSettings
from shared.bus import NoResponse
from shared.domain.moves_for_waiting_unit import SUBJECT, MovesForUnitRequest, MovesForUnitResponse, PlannedMove
from shared.kube.instants import SECOND
from tests.unit.descheduler.small_cluster import SmallCluster
from tests.unit.descheduler.test_defragment import cluster_of


class Scheduler:
    """A scheduler on the bus that does not keep the pods which should stay: it names others that are not there."""

    def __init__(self, cluster: SmallCluster, *, answers: bool = True) -> None:
        self.requests: list[MovesForUnitRequest] = []
        self._answers = answers
        runtime: Any = SimpleNamespace(state=cluster.state, settings=DeschedulerSettings(), bus=self)
        self._questions, self._cluster = SchedulerQuestions(runtime), cluster

    async def request(self, subject: str, data: bytes, *, deadline_s: float) -> bytes:
        assert (subject, deadline_s) == (SUBJECT, DeschedulerSettings().unit_moves_timeout_s)
        self.requests.append(msgspec.json.decode(data, type=MovesForUnitRequest))
        if not self._answers:
            raise NoResponse(subject, deadline_s)
        uid = f"unknown-{len(self.requests)}"
        return msgspec.json.encode(MovesForUnitResponse(moves=(PlannedMove(uid, f"d/{uid}", "a", "b"),)))

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
    scheduler = Scheduler(cluster_of(), answers=False)
    for after_s, count in ((0.0, 1), (59.0, 1), (60.0, 2), (61.0, 2), (0.0, 3)):  # the clock is set back at the end
        scheduler.plan(after_s)
        assert len(scheduler.requests) == count, after_s
