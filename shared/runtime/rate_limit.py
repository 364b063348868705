"""Rate limit of asyncio callers: so many a second, with a burst after a pause."""

import asyncio


class RateLimit:
    """Admits `per_s` callers a second; after a pause, at once as many as `burst_s` of it would have admitted."""

    def __init__(self, per_s: float, burst_s: float = 0) -> None:
        self._gap_s = 1 / per_s
        self._burst_s = burst_s
        self._next = 0.0

    async def wait(self) -> None:
        """Waits for the caller's turn; returns at once after a pause."""
        now = asyncio.get_running_loop().time()
        at = max(self._next, now - self._burst_s)
        self._next = at + self._gap_s
        if at > now:
            await asyncio.sleep(at - now)
