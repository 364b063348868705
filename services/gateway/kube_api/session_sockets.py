"""The sockets of a session, so that they end with it.

Aiohttp takes leave of a TLS connection that is given up, such as a cancelled watch, and waits for the server's answer to that
without telling whoever closes the session: half a minute where the server is gone, and past the end of the loop.
"""

import asyncio
import contextlib
import socket
from typing import Any
from weakref import WeakSet

ENDS_WITHIN_S = 1.0


class Sockets:
    """Makes the sockets of sessions (`socket_factory` of a connector), and ends those that outlive their session."""

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket for an address as `getaddrinfo` gives it."""
        family, kind, protocol = address[:3]
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        return made

    async def close(self) -> None:
        """End what is still open, once the sessions are closed; returns when it is gone."""
        for each in self._open():
            with contextlib.suppress(OSError):  # not connected, or no longer
                each.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDS_WITHIN_S):
                while self._open():  # their transports hear of it in the loop's next rounds
                    await asyncio.sleep(0)

    def _open(self) -> list[socket.socket]:
        return [each for each in self._made if each.fileno() >= 0]
