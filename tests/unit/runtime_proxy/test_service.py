"""The start of the process in front of a runtime that answers wrongly, and on a socket that cannot be made."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.runtime_proxy import cri_messages as cri
from services.runtime_proxy.own_socket import NoSocket
from services.runtime_proxy.serve_cri import NoRuntime
from services.runtime_proxy.service import _serve
from services.runtime_proxy.settings import ProxyOptions, RuntimeProxySettings
from shared.runtime_hooks.unix_socket_server import start_server

UNDECODABLE = b"\xff\xff\xff"
VERSION = cri.VersionResponse(runtime_name="some", runtime_version="1").SerializeToString()


class Runtime(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Answers with bytes by the name of the method."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self.answers = answers

    def service(self, details: Any) -> Any:
        async def answer(_: bytes, __: Any) -> bytes:
            return self.answers[details.method.rpartition("/")[2]]

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="koord-") as made:  # short: that of a socket has at most 107 bytes
        yield Path(made)


async def start_proxy(folder: Path, endpoint: str, **answers: bytes) -> None:
    socket = folder / "runtime.sock"
    server = await start_server(socket, Runtime(answers))
    try:
        await _serve(ProxyOptions(endpoint, str(socket)), RuntimeProxySettings(registrations=str(folder / "hooks")))
    finally:
        await server.stop(grace=None)


async def test_a_version_that_cannot_be_decoded_names_the_runtime_and_its_flag(folder: Path) -> None:
    with pytest.raises(NoRuntime, match=r"runtime.sock .*cannot be decoded.*--remote-runtime-service-endpoint"):
        await start_proxy(folder, str(folder / "p.sock"), Version=UNDECODABLE)


@pytest.mark.parametrize("endpoint", ["", "/proc/koord.sock"], ids=["a folder", "no socket can be made there"])
async def test_a_socket_that_cannot_be_made_is_named_with_its_flag(
    folder: Path, endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Lists that cannot be decoded do not keep the kubelet from its runtime: the start goes on to the socket."""
    with pytest.raises(NoSocket, match=r"cannot be served: .*--koord-runtimeproxy-endpoint") as failed:
        await start_proxy(
            folder, endpoint or str(folder), Version=VERSION, ListPodSandbox=b"", ListContainers=UNDECODABLE
        )
    assert str(failed.value).startswith(endpoint or str(folder))
    found = [getattr(each, "why", "") for each in caplog.records if "are not known" in each.message]
    assert found
    assert "a list cannot be decoded" in found[0]
