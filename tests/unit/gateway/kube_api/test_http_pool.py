"""HTTP responses in any pieces, from a server on loopback."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.kube_api.http_pool import HttpPool, NeverSent
from tests.support.hypothesis_examples import examples

PLAIN = b'HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"a": 12}'
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n5;note=x\r\n: 12}\r\n0\r\n\r\n'
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>no</html>"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(script: Script) -> AsyncIterator[tuple[HttpPool, list[int]]]:
    """Yields a pool to a server that runs the script on each connection, and the list of its connections."""
    connections: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    pool = HttpPool(f"http://{host}:{port}", None)
    try:
        yield pool, connections
    finally:
        pool.close()
        listening.close()
        await listening.wait_closed()


def answering(*answers: bytes, pieces: int = 1_000_000, close: bool = False) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            for at in range(0, len(answer), pieces):
                writer.write(answer[at : at + pieces])
                await writer.drain()
                await asyncio.sleep(0)
        if not close:
            await reader.read()

    return script


async def send(pool: HttpPool, timeout_s: float = 5) -> tuple[int, bytes]:
    return await pool.request("GET", "/x", {}, None, timeout_s)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 80))
def test_a_response_may_arrive_in_any_pieces(pieces: int) -> None:
    async def run() -> None:
        async with server(answering(PLAIN, CHUNKED, EMPTY, PLAIN, pieces=pieces)) as (pool, connections):
            found = [await send(pool) for _ in range(4)]
        assert found == [(201, b'{"a": 12}'), (200, b'{"a": 12}'), (204, b""), (201, b'{"a": 12}')]
        assert len(connections) == 1

    asyncio.run(run())


async def test_concurrent_requests_have_connections_of_their_own_which_are_reused() -> None:
    async with server(answering(*[PLAIN] * 10)) as (pool, connections):
        for _ in range(3):
            await asyncio.gather(*(send(pool) for _ in range(5)))
        assert len(connections) == 5


async def test_a_request_has_its_headers_and_body() -> None:
    received = bytearray()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(2))
        writer.write(PLAIN)

    async with server(script) as (pool, _):
        await pool.request("POST", "/api?a=b", {"Authorization": "Bearer t"}, b"{}", 5)
    head, body = bytes(received).split(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    assert first == "POST /api?a=b HTTP/1.1"
    assert {"Authorization: Bearer t", "Content-Length: 2", "Accept: application/json"} <= set(headers)
    assert any(header.startswith("Host: 127.0.0.1:") for header in headers)
    assert body == b"{}"


async def test_a_response_without_a_length_ends_with_the_connection() -> None:
    async with server(answering(UNTIL_CLOSE, close=True)) as (pool, _):
        assert await send(pool) == (502, b"<html>no</html>")


async def test_a_connection_closed_by_the_server_is_not_reused() -> None:
    async with server(answering(LAST, close=True)) as (pool, connections):
        assert await send(pool) == (200, b"ok")
        assert await send(pool) == (200, b"ok")
        assert len(connections) == 2


async def test_a_connection_that_broke_while_idle_is_not_reused() -> None:
    async with server(answering(PLAIN, close=True)) as (pool, connections):
        await send(pool)
        await asyncio.sleep(0.05)
        await send(pool)
        assert len(connections) == 2


@pytest.mark.parametrize("answer", [b"", PLAIN[:20], PLAIN[:-3], CHUNKED[:-7]])
async def test_an_incomplete_response_is_an_error(answer: bytes) -> None:
    async with server(answering(answer, close=True)) as (pool, _):
        with pytest.raises(ConnectionError):
            await send(pool)


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"])
async def test_a_response_that_is_not_http_is_an_error(answer: bytes) -> None:
    async with server(answering(answer)) as (pool, _):
        with pytest.raises(ConnectionError, match="not an HTTP answer"):
            await send(pool)


async def test_a_late_response_is_not_read_by_another_request() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)
        writer.write(PLAIN)
        await reader.read()

    async with server(script) as (pool, connections):
        with pytest.raises(TimeoutError):
            await send(pool, timeout_s=0.1)
        assert await send(pool) == (201, b'{"a": 12}')
        assert len(connections) == 2


async def test_a_cancelled_request_closes_its_connection() -> None:
    """Otherwise its response would be read as that of the next request."""
    async with server(answering(PLAIN, PLAIN)) as (pool, connections):
        sending = asyncio.create_task(send(pool))
        while not connections:
            await asyncio.sleep(0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert await send(pool) == (201, b'{"a": 12}')
        assert len(connections) == 2


async def test_a_request_without_a_connection_was_never_sent() -> None:
    pool = HttpPool("http://127.0.0.1:1", None)
    with pytest.raises(NeverSent):
        await send(pool)


async def test_a_path_cannot_end_the_request_line() -> None:
    pool = HttpPool("http://127.0.0.1:1", None)
    for path in ("/a b", "/a\r\nX: y", "a", ""):
        with pytest.raises(ValueError, match="is no path"):
            await pool.request("GET", path, {}, None, 1)
