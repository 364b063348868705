"""Answers the descheduler which few moves would admit a waiting unit, a slice of the search at a time.

The State stays as it is meanwhile, and no pod is placed: the answer is one of a single instant. The process goes on
with everything else, and a search that takes too long is given up.
"""

import asyncio

import msgspec

from services.scheduler.explain.moves_that_admit_unit import Slices
from services.scheduler.extender_server.answer_moves_for_waiting_unit import moves_for_unit
from services.scheduler.extender_server.extender_service import ExtenderService
from shared.bus import Request
from shared.domain.moves_for_waiting_unit import BadUnitMessage, MovesForUnitResponse, decode_request

LONGEST_SEARCH_S = 2.0
"""No pod is placed meanwhile."""


class UnitMovesAnswers:
    """The handler of a leading scheduler."""

    def __init__(self, extender: ExtenderService, longest_s: float = LONGEST_SEARCH_S) -> None:
        self._extender = extender
        self._longest_s = longest_s

    async def answer(self, request: Request) -> None:
        """Answers a request. Nothing is decided."""
        await request.respond(msgspec.json.encode(await self._found(request.data)))

    async def _found(self, data: bytes) -> MovesForUnitResponse:
        try:
            requested = decode_request(data)
        except BadUnitMessage as error:
            return MovesForUnitResponse(fault=str(error))
        extender = self._extender
        async with extender.turn:
            if extender.cache is None:
                return MovesForUnitResponse(fault="the scheduler has not begun yet")
            with extender.runtime.hold():
                seen = dict(extender.cache.view.positions)
                found = await self._in_time(moves_for_unit(extender.cache, requested, extender.runtime.now_ns()))
        return msgspec.structs.replace(found, seen=seen)

    async def _in_time(self, search: Slices[MovesForUnitResponse]) -> MovesForUnitResponse:
        """Runs a search, and other tasks between its slices."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._longest_s
        while True:
            try:
                next(search)
            except StopIteration as ended:
                found: MovesForUnitResponse = ended.value
                return found
            await asyncio.sleep(0)
            if loop.time() >= ends_s:
                return MovesForUnitResponse(fault=f"the search took more than {self._longest_s:g} s, and was given up")
