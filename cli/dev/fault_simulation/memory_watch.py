"""A watch of the API server in memory: the lines that a client has not read yet."""

import asyncio
from collections import deque
from typing import NamedTuple


class Change(NamedTuple):
    """One change of an object, as a watch sends it."""

    version: int
    line: bytes


class Watch:
    """A watch that a client has open.

    Attributes:
        lines: not yet read by the client.
        ended: the server or the network has ended it.
    """

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()
        self.ended = False
        self._wake: asyncio.Future[None] | None = None

    def put(self, line: bytes) -> None:
        """Delivers a line."""
        if not self.ended:
            self.lines.append(line)
            self._notify()

    def end(self) -> None:
        """Ends the connection."""
        self.ended = True
        self._notify()

    async def wait(self) -> None:
        """Returns once there is a line, or the end."""
        while not self.lines and not self.ended:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
