"""The proxy's own socket: one program serves it, and its owner alone may use it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from services.runtime_proxy.known_containers import KnownContainers
from shared.errors import KoordError

DRAIN_S = 5.0
"""Seconds at the end for calls in progress."""


class Running(NamedTuple):
    """A proxy that serves its socket.

    Attributes:
        version: the runtime's name and version.
        known: its pods and containers.
    """

    version: str
    known: KnownContainers


class SocketTaken(KoordError):
    """Another program serves the proxy's socket."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(f"{endpoint} is served by another program; stop it, or give --koord-runtimeproxy-endpoint")


class NoSocket(KoordError):
    """The proxy's socket cannot be made."""

    def __init__(self, endpoint: str, why: str) -> None:
        super().__init__(
            f"{endpoint} cannot be served: {why}; run the proxy as root, or give --koord-runtimeproxy-endpoint"
        )


@contextmanager
def socket_in_place(endpoint: str) -> Iterator[None]:
    """Checks that no other program serves a socket, before it is made within.

    Raises:
        SocketTaken: another program serves it.
        NoSocket: it cannot be made.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(endpoint) == 0:
            raise SocketTaken(endpoint)
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise NoSocket(endpoint, str(error)) from error


def remove_socket(endpoint: str) -> None:
    """Removes the socket of a proxy that ends, so that a client finds none instead of one that does not answer."""
    with suppress(OSError):
        Path(endpoint).unlink()
