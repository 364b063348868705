"""The queue of client requests that wait for the next step; each client waits for the commit of its step."""

import asyncio
from collections import deque

from services.simulator.api.request_execution import Request


class RequestQueue:
    """Requests in the order of their arrival."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Request, asyncio.Future[bytes]]] = deque()
        self._arrived = asyncio.Event()

    async def submit(self, request: Request) -> bytes:
        """Queues a request. Returns the response after the commit of its changes."""
        response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, response))
        self._arrived.set()
        return await response

    async def arrived(self) -> None:
        """Returns as soon as a request waits."""
        await self._arrived.wait()

    def take(self, size_bytes: int) -> list[tuple[Request, "asyncio.Future[bytes]"]]:
        """Removes the oldest requests: at least one, and more while their JSON stays within `size_bytes`."""
        taken: list[tuple[Request, asyncio.Future[bytes]]] = []
        while self._waiting and (not taken or size_bytes >= len(self._waiting[0][0].data)):
            request, response = self._waiting.popleft()
            size_bytes -= len(request.data)
            if not response.done():  # the client of a cancelled request has gone
                taken.append((request, response))
        if not self._waiting:
            self._arrived.clear()
        return taken
