"""A stand-in for a container runtime that answers each call of CRI v1 at once: for `koord bench proxy`.

python -m cli.bench.instant_runtime SOCKET
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc

from services.runtime_proxy import cri_messages as cri
from shared.runtime_hooks.unix_socket_server import start_server

SANDBOX = "5" * 64


def container_id(shares: int) -> str:
    """Returns the id of a container, which shows the CPU shares with which it was created."""
    return f"{shares:064x}"


def answer(method: str, data: bytes) -> bytes:
    """Returns the answer to a call."""
    found: bytes = b""
    match method.removeprefix(cri.RUNTIME_SERVICE):
        case "Version":
            found = cri.VersionResponse(runtime_name="instant", runtime_version="1").SerializeToString()
        case "RunPodSandbox":
            found = cri.RunPodSandboxResponse(pod_sandbox_id=SANDBOX).SerializeToString()
        case "CreateContainer":
            shares = cri.CreateContainerRequest.FromString(data).config.linux.resources.cpu_shares
            found = cri.CreateContainerResponse(container_id=container_id(shares)).SerializeToString()
    return found


class _Runtime(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    def service(self, details: Any) -> Any:
        async def answered(data: bytes, _: Any) -> bytes:
            return answer(details.method, data)

        return grpc.unary_unary_rpc_method_handler(answered)


async def _serve(socket: Path) -> None:
    server = await start_server(socket, _Runtime())
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
