"""HTTP answers, however they are cut into pieces, from a server on loopback."""

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
    """HttpPool to a server that does with each connection what the script says, and how many connections it took."""
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
    channels = HttpPool(f"http://{host}:{port}", None)
    try:
        yield channels, connections
    finally:
        channels.close()
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


async def ask(channels: HttpPool, timeout_s: float = 5) -> tuple[int, bytes]:
    return await channels.request("GET", "/x", {}, None, timeout_s)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 80))
def test_an_answer_may_come_in_any_pieces(pieces: int) -> None:
    async def run() -> None:
        async with server(answering(PLAIN, CHUNKED, EMPTY, PLAIN, pieces=pieces)) as (channels, connections):
            found = [await ask(channels) for _ in range(4)]
        assert found == [(201, b'{"a": 12}'), (200, b'{"a": 12}'), (204, b""), (201, b'{"a": 12}')]
        assert len(connections) == 1

    asyncio.run(run())


async def test_requests_at_the_same_time_have_connections_of_their_own_which_are_used_again() -> None:
    async with server(answering(*[PLAIN] * 10)) as (channels, connections):
        for _ in range(3):
            await asyncio.gather(*(ask(channels) for _ in range(5)))
        assert len(connections) == 5


async def test_a_request_says_what_it_must() -> None:
    heard = bytearray()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(2))
        writer.write(PLAIN)

    async with server(script) as (channels, _):
        await channels.request("POST", "/api?a=b", {"Authorization": "Bearer t"}, b"{}", 5)
    head, body = bytes(heard).split(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    assert first == "POST /api?a=b HTTP/1.1"
    assert {"Authorization: Bearer t", "Content-Length: 2", "Accept: application/json"} <= set(headers)
    assert any(header.startswith("Host: 127.0.0.1:") for header in headers)
    assert body == b"{}"


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    async with server(answering(UNTIL_CLOSE, close=True)) as (channels, _):
        assert await ask(channels) == (502, b"<html>no</html>")


async def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    async with server(answering(LAST, close=True)) as (channels, connections):
        assert await ask(channels) == (200, b"ok")
        assert await ask(channels) == (200, b"ok")
        assert len(connections) == 2


async def test_a_connection_that_broke_while_idle_is_not_used_again() -> None:
    async with server(answering(PLAIN, close=True)) as (channels, connections):
        await ask(channels)
        await asyncio.sleep(0.05)
        await ask(channels)
        assert len(connections) == 2


@pytest.mark.parametrize("answer", [b"", PLAIN[:20], PLAIN[:-3], CHUNKED[:-7]])
async def test_an_answer_that_breaks_off_is_no_answer(answer: bytes) -> None:
    async with server(answering(answer, close=True)) as (channels, _):
        with pytest.raises(ConnectionError):
            await ask(channels)


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"])
async def test_what_is_not_http_is_no_answer(answer: bytes) -> None:
    async with server(answering(answer)) as (channels, _):
        with pytest.raises(ConnectionError, match="not an HTTP answer"):
            await ask(channels)


async def test_an_answer_that_comes_too_late_is_nobody_elses() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)
        writer.write(PLAIN)
        await reader.read()

    async with server(script) as (channels, connections):
        with pytest.raises(TimeoutError):
            await ask(channels, timeout_s=0.1)
        assert await ask(channels) == (201, b'{"a": 12}')
        assert len(connections) == 2


async def test_a_request_that_is_cancelled_takes_its_connection_with_it() -> None:
    """Its answer would be read as the next request's."""
    async with server(answering(PLAIN, PLAIN)) as (channels, connections):
        asking = asyncio.create_task(ask(channels))
        while not connections:
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await ask(channels) == (201, b'{"a": 12}')
        assert len(connections) == 2


async def test_a_server_that_is_not_there_was_never_asked() -> None:
    channels = HttpPool("http://127.0.0.1:1", None)
    with pytest.raises(NeverSent):
        await ask(channels)


async def test_a_path_cannot_end_the_request_line() -> None:
    channels = HttpPool("http://127.0.0.1:1", None)
    for path in ("/a b", "/a\r\nX: y", "a", ""):
        with pytest.raises(ValueError, match="is no path"):
            await channels.request("GET", path, {}, None, 1)
