"""Sockets of an aiohttp session, closed together with it.

When a TLS connection is abandoned, such as that of a cancelled watch, aiohttp sends its closing message and waits for
the server's, without blocking the close of the session: half a minute if the server is down, past the end of the event
loop.
"""

import asyncio
import contextlib
import socket
from typing import Any
from weakref import WeakSet

CLOSE_TIMEOUT_S = 1.0


class LingeringSockets:
    """Creates sockets of sessions (`socket_factory` of a connector), and closes those that outlive their session."""

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """Creates a socket for an address as `getaddrinfo` returns it; only within a running event loop.

        When the descriptor of a connection was closed without the event loop's knowledge, the loop refuses each later
        socket that gets its number (https://github.com/MagicStack/uvloop/issues/653). Such a number is left open and
        unused: the loop closes it when it ends that connection.
        """
        family, kind, protocol = address[:3]
        while True:
            made = socket.socket(family, kind, protocol)
            if not _is_taken(made.fileno()):
                self._made.add(made)
                return made
            made.detach()

    async def close(self) -> None:
        """Shuts down sockets that are still open after the sessions were closed, and waits until they are released."""
        for each in self._open():
            with contextlib.suppress(OSError):  # not connected, or no longer
                each.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                # The transports notice the shutdown in the next iterations of the event loop.
                while self._open():
                    await asyncio.sleep(0)

    def _open(self) -> list[socket.socket]:
        return [each for each in self._made if each.fileno() >= 0]


def _is_taken(descriptor: int) -> bool:
    """Reports whether the event loop takes a descriptor for that of one of its connections."""
    try:
        asyncio.get_running_loop().remove_writer(descriptor)
    except RuntimeError:
        return True
    return False
