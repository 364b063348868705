"""Where requests wait for the next step, and their clients for its commit."""

import asyncio
from collections import deque

from services.simulator.api.requests import Request


class Desk:
    """Requests in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Request, asyncio.Future[bytes]]] = deque()
        self._came = asyncio.Event()

    async def ask(self, request: Request) -> bytes:
        """Hand in a request; the answer comes once what it changed is committed."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        self._came.set()
        return await answer

    async def came(self) -> None:
        """Return when a request waits."""
        await self._came.wait()

    def take(self, size_bytes: int) -> list[tuple[Request, "asyncio.Future[bytes]"]]:
        """Take requests off, the oldest first: one, and more while their JSON stays within `size_bytes`."""
        taken: list[tuple[Request, asyncio.Future[bytes]]] = []
        while self._waiting and (not taken or size_bytes >= len(self._waiting[0][0].data)):
            request, answer = self._waiting.popleft()
            size_bytes -= len(request.data)
            if not answer.done():  # nobody waits for one that was given up
                taken.append((request, answer))
        if not self._waiting:
            self._came.clear()
        return taken
