"""A rate limit for writes, so that a backlog does not take the API server away from everyone else."""

import asyncio


class Pace:
    """Lets `per_s` callers pass each second, and a tenth of that at once after a pause."""

    def __init__(self, per_s: float) -> None:
        self._gap_s = 1 / per_s
        self._burst_s = 0.1
        self._next = 0.0

    async def turn(self) -> None:
        """Return when it is the caller's turn."""
        now = asyncio.get_running_loop().time()
        at = max(self._next, now - self._burst_s)
        self._next = at + self._gap_s
        if at > now:
            await asyncio.sleep(at - now)
