"""A gRPC server on a unix socket that its owner alone may use."""

import os
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
    _make_place(socket)
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((handler,))
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{socket}")
    finally:
        os.umask(before)
    await server.start()
    return server


def _make_place(socket: Path) -> None:
    socket.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
