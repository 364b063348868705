"""Ports for servers on loopback."""

import secrets
import socket

# Below the range from which Linux gives ports to outgoing connections: none takes a server's port while it restarts.
FIRST, LAST = 20_000, 32_000


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on now."""
    while True:
        port = FIRST + secrets.randbelow(LAST - FIRST)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: a closing connection is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
