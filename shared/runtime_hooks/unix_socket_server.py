"""A gRPC server on a unix socket that its owner alone may use."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc


async def start_server(socket: Path, handler: Any, options: tuple[tuple[str, int], ...] = ()) -> Any:
    """Starts a server on a socket, in place of one that a killed program left.

    Args:
        handler: a grpc.GenericRpcHandler.

    Raises:
        OSError, RuntimeError: the socket cannot be made.
    """
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((handler,))
    with made_for_owner(socket):
        server.add_insecure_port(f"unix:{socket}")
    await server.start()
    return server


@contextmanager
def made_for_owner(socket: Path) -> Iterator[None]:
    """Makes place for a socket that is made within, for its owner alone.

    Raises:
        OSError: there is no place.
    """
    socket.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
