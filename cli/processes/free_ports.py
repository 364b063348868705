"""Ports for servers on loopback."""

import os
import secrets
import socket
from collections import deque

FIRST, LAST = 20_000, 32_000
"""Below the range from which Linux gives ports to outgoing connections: none takes a server's port while it restarts."""

RANGE = "KOORD_PORTS"
"""Variable that narrows the range (`20000-26000`), for processes beside each other that must not choose the same port."""

_given: deque[int] = deque(maxlen=256)  # chosen, and perhaps not listened on yet


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on now, and that this process has not chosen lately."""
    configured = os.environ.get(RANGE, f"{FIRST}-{LAST}")
    first, last = (int(end) for end in configured.split("-"))
    while True:
        port = first + secrets.randbelow(last - first)
        if port not in _given and is_free(port):
            _given.append(port)
            return port


def is_free(port: int) -> bool:
    """Reports whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: a closing connection is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
