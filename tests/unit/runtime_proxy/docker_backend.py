"""A socket in place of Docker's that answers with bytes a test decides: for what a healthy dockerd does not do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

INFO = {"ServerVersion": "0", "CgroupDriver": "cgroupfs"}


class Received(NamedTuple):
    """A request: method and target, lines of its head, and its body."""

    target: str
    head: list[str]
    body: bytes

    def header(self, name: str) -> str:
        """Returns a header; empty without it."""
        found = [line.partition(": ")[2] for line in self.head if line.lower().startswith(name.lower() + ":")]
        return ", ".join(found)


Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Backend:
    """Answers by target, such as `GET /info`.

    Attributes:
        answers: bytes, or what goes on with the connection after the request's head and body.
        received: all requests.
    """

    def __init__(self) -> None:
        self.answers: dict[str, bytes | Conversation] = {
            "GET /info": answer(INFO),
            "GET /containers/json?all=1": answer([]),
        }
        self.received: list[Received] = []

    @asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._connection, socket)
        try:
            yield
        finally:
            server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
            request = Received(head[0].removesuffix(" HTTP/1.1"), head[1:], b"")
            if request.header("Transfer-Encoding") == "chunked":
                request = request._replace(body=await reader.readuntil(b"0\r\n\r\n"))
            else:
                request = request._replace(body=await reader.readexactly(int(request.header("Content-Length") or 0)))
            self.received.append(request)
            found = self.answers.get(request.target, answer({"message": "page not found"}, "404 Not Found"))
            if isinstance(found, bytes):
                writer.write(found)
            else:
                await found(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def answer(body: Any, status: str = "200 OK") -> bytes:
    """Returns an answer as JSON."""
    data = msgspec.json.encode(body)
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data
