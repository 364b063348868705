"""Connections of a closed session are closed, whatever the server does."""

import asyncio
import gc
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import trustme

from cli.dev.kubeconfig import write_kubeconfig
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.close_sockets_that_outlive_session import LingeringSockets
from services.gateway.kube_api.resources import PODS
from tests.support.waiting import until

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
LINE = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'
CHUNK = b"%x\r\n%s\r\n" % (len(LINE), LINE)


@contextmanager
def dead_after(answer: bytes, folder: Path) -> Iterator[tuple[Path, int]]:
    """Yields the kubeconfig and the port of a TLS server that sends this response to each request and then nothing."""
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    in_flight: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            connection.settimeout(30)
            speaking = tls.wrap_socket(connection, server_side=True)
            speaking.recv(65_536)
            speaking.sendall(answer)
            in_flight.append(speaking)  # kept open, and never read again

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        thread = threading.Thread(target=serve)
        thread.start()
        ca = authority.cert_pem.bytes()
        url = f"https://127.0.0.1:{port}"
        try:
            yield write_kubeconfig(folder / "kubeconfig", url=url, ca=ca, user="gateway", credentials="token"), port
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in in_flight:
                connection.close()


def connections_to(port: int) -> int:
    return sum(bool(found.raddr) and found.raddr[1] == port for found in psutil.Process().net_connections("tcp"))


async def receive(api: KubeApi, received: asyncio.Event) -> None:
    async for _ in api.watch(PODS, "1", last_s=600, watch_idle_timeout_s=600):
        received.set()


@pytest.mark.parametrize("answer", [HEAD + CHUNK, HEAD, b""])
def test_an_abandoned_watch_leaves_no_connection_behind(
    answer: bytes, tmp_path: Path, loop_of: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def watch_and_leave(config: Path, port: int) -> None:
        async with KubeApi(str(config)) as api:
            received = asyncio.Event()
            watching = asyncio.create_task(receive(api, received))
            await until(lambda: connections_to(port))
            if CHUNK in answer:
                await until(received.is_set)
            await asyncio.sleep(0.2)  # the request is sent, and its answer, if any, begun
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        assert connections_to(port) == 0

    with dead_after(answer, tmp_path) as (config, port):
        with asyncio.Runner(loop_factory=loop_of) as runner:
            runner.run(watch_and_leave(config, port))
        gc.collect()  # what the loop left behind would be an error here


def test_a_descriptor_that_the_loop_still_takes_for_a_connection_is_not_used(
    loop_of: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def connect_twice(listening: socket.socket) -> None:
        loop, sockets = asyncio.get_running_loop(), LingeringSockets()
        address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", listening.getsockname())
        first = sockets.make(address)
        first.setblocking(False)
        await loop.sock_connect(first, listening.getsockname())
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=first)
        descriptor = first.fileno()
        os.close(descriptor)  # behind the loop's back; the next socket gets the number
        second = sockets.make(address)
        second.setblocking(False)
        assert second.fileno() != descriptor
        async with asyncio.timeout(30):
            await loop.sock_connect(second, listening.getsockname())
        transport.abort()
        await asyncio.sleep(0.1)
        assert second.getpeername() == listening.getsockname()
        second.close()

    with socket.create_server(("127.0.0.1", 0)) as listening, asyncio.Runner(loop_factory=loop_of) as runner:
        runner.run(connect_twice(listening))


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_of(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop

    return asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop
