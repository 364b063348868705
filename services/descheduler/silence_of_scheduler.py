"""The silence of the scheduler: it answers none of the descheduler's questions.

A question holds the State, and with it the descheduler's loop, until its answer or its deadline. After one without an
answer no other is sent until the scheduler has answered an empty question, which is sent beside the loop: a silent
scheduler holds one pass of it, not each.
"""

import asyncio
import logging

import msgspec

from shared.bus import NoResponse, NotPermitted
from shared.domain.move_destinations import SUBJECT, DestinationsRequest
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Between two empty questions."""


class SilenceOfScheduler:
    """Begins with a question without an answer, and ends with the answer to an empty one."""

    def __init__(self, runtime: Runtime, deadline_s: float) -> None:
        self._runtime = runtime
        self._deadline_s = deadline_s
        self._ends: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        """Reports whether the scheduler left a question unanswered, and none has been answered since."""
        return self._ends is not None and not self._ends.done()

    def begin(self) -> None:
        """A question had no answer."""
        if not self:
            log.warning("the scheduler does not answer; no pod moves until it does")
            self._ends = asyncio.create_task(self._listen(), name="silence of the scheduler")

    async def stop(self) -> None:
        """Ends the empty questions."""
        if self._ends is not None:
            self._ends.cancel()
            await asyncio.gather(self._ends, return_exceptions=True)
            self._ends = None

    async def _listen(self) -> None:
        empty = msgspec.json.encode(DestinationsRequest(()))
        while True:
            try:
                await self._runtime.bus.request(SUBJECT, empty, deadline_s=self._deadline_s)
                break
            except (NoResponse, NotPermitted):
                await asyncio.sleep(PAUSE_S)
        log.warning("the scheduler answers again")
