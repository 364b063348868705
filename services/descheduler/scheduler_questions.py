"""The questions of a leading descheduler to the scheduler: destinations of pods, and the moves that admit a unit.

Without an answer no pod moves, and a scheduler that gave none is not asked until it answers again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from services.descheduler.configuration.configuration import Configuration
from services.descheduler.framework.cycle import CyclePlan, plan_cycle
from services.descheduler.framework.units_that_wait import UnitAnswers
from services.descheduler.settings import DecisionSettings, DeschedulerSettings
from services.descheduler.silence_of_scheduler import SilenceOfScheduler
from shared.bus import NoResponse, NotPermitted
from shared.domain import move_destinations, moves_for_waiting_unit
from shared.domain.move_destinations import BadMovesMessage, DestinationsRequest, DestinationsResponse, Move
from shared.domain.moves_for_waiting_unit import BadUnitMessage, MovesForUnitRequest, MovesForUnitResponse
from shared.events.descheduling import EvictionCaseOpened
from shared.kube.instants import SECOND
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

NO_ANSWER, SILENT = "the scheduler did not answer in time", "the scheduler does not answer"

MOST_QUESTIONS = 4
"""Questions of a plugin about one unit in a cycle, each without the victims that stay."""

PLANNED_AGAIN_NS = 60 * SECOND
"""A unit for which the scheduler found no moves is planned again after this time."""


class SchedulerQuestions:
    """Requests answers, and remembers the units for which there were no moves."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings: DeschedulerSettings = runtime.settings
        self._in_vain_ns: dict[str, int] = {}
        self._silence = SilenceOfScheduler(runtime, self._settings.destinations_timeout_s)

    async def stop(self) -> None:
        """Ends what goes on beside the loop."""
        await self._silence.stop()

    async def destinations(self, moves: tuple[Move, ...]) -> DestinationsResponse:
        """Requests a destination of each pod; without an answer no pod has one."""
        if not moves:
            return DestinationsResponse()
        deadline_s = self._settings.destinations_timeout_s
        answer = await self._response(
            move_destinations.SUBJECT, DestinationsRequest(moves), deadline_s, move_destinations.decode_response
        )
        if isinstance(answer, DestinationsResponse):
            return answer
        if answer != SILENT:
            log.warning("the scheduler cannot be asked for destinations; no pod moves", extra={"error": answer})
        return DestinationsResponse(fault=answer)

    async def plan(self, configuration: Configuration, settings: DecisionSettings, now_ns: int) -> CyclePlan:
        """Plans a cycle, with answers to the questions of its plugins; the caller holds the State."""
        in_vain = self._in_vain_ns = {
            unit: at_ns for unit, at_ns in self._in_vain_ns.items() if 0 <= now_ns - at_ns < PLANNED_AGAIN_NS
        }
        answers = UnitAnswers(resting=frozenset(in_vain))
        plan = await self._planned(configuration, settings, now_ns, answers)
        for _ in range(MOST_QUESTIONS):
            if not plan.questions:
                break
            answers = answers._replace(of={**answers.of, **await self._answers(plan.questions)})
            plan = await self._planned(configuration, settings, now_ns, answers)
        found = {case.findings.unit.name for case in plan.cases if case.findings.unit is not None}
        in_vain.update(
            {
                question.unit: now_ns
                for question, response in answers.of.values()
                if question.unit not in found and response.fault != SILENT
            }
        )
        return plan

    def opened(self, cases: Iterable[EvictionCaseOpened], now_ns: int) -> None:
        """Notes the cases of a cycle: a unit for which no pod leaves after all is planned again later."""
        for case in cases:
            if case.unit is not None and not case.victims:
                self._in_vain_ns[case.unit.name] = now_ns

    async def _planned(
        self, configuration: Configuration, settings: DecisionSettings, now_ns: int, answers: UnitAnswers
    ) -> CyclePlan:
        """Plans in a thread: it takes half a second for 100,000 pods, and the writer must show that it lives meanwhile."""
        return await asyncio.to_thread(plan_cycle, self._runtime.state, configuration, settings, now_ns, answers)

    async def _answers(
        self, questions: Mapping[str, MovesForUnitRequest]
    ) -> dict[str, tuple[MovesForUnitRequest, MovesForUnitResponse]]:
        return {of: (question, await self._unit_moves(question)) for of, question in questions.items()}

    async def _unit_moves(self, request: MovesForUnitRequest) -> MovesForUnitResponse:
        deadline_s = self._settings.unit_moves_timeout_s
        answer = await self._response(
            moves_for_waiting_unit.SUBJECT,
            request,
            deadline_s,
            lambda data: moves_for_waiting_unit.decode_response(data, request),
        )
        response = answer if isinstance(answer, MovesForUnitResponse) else MovesForUnitResponse(fault=answer)
        if response.fault and response.fault != SILENT:
            log.warning(
                "the scheduler cannot be asked for the moves that admit a unit",
                extra={"unit": request.unit, "error": response.fault},
            )
        return response

    async def _response(
        self, subject: str, request: msgspec.Struct, deadline_s: float, decode: Callable[[bytes], Answer]
    ) -> Answer | str:
        """Returns the answer to a request, or why there is none."""
        if self._silence:
            return SILENT
        try:
            return decode(await self._runtime.bus.request(subject, msgspec.json.encode(request), deadline_s=deadline_s))
        except NoResponse:
            self._silence.begin()
            return NO_ANSWER
        except (NotPermitted, BadMovesMessage, BadUnitMessage) as error:
            return str(error)
