"""Rates: of writes, so that a backlog does not take the API server away from everyone else; of appends and starts, so that
what comes in quick succession shares a transaction, or a look at the lock.
"""

import asyncio


class Pace:
    """Lets `per_s` callers pass each second; after a pause, as many at once as `burst_s` of it would have let pass."""

    def __init__(self, per_s: float, burst_s: float = 0) -> None:
        self._gap_s = 1 / per_s
        self._burst_s = burst_s
        self._next = 0.0

    async def turn(self) -> None:
        """Return when it is the caller's turn; at once after a pause."""
        now = asyncio.get_running_loop().time()
        at = max(self._next, now - self._burst_s)
        self._next = at + self._gap_s
        if at > now:
            await asyncio.sleep(at - now)
