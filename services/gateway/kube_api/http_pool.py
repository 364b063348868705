"""HTTP/1.1 connection pool for short requests: a connection serves one request at a time and is kept for the next one.

A binding through aiohttp costs 300 us of a core, through this pool 90 us (2026, two cores shared with the API server);
at 500 pods a second that bounds the binding rate. Watches, and all requests through a proxy, use aiohttp.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

from services.gateway.kube_api.connection_error_text import connection_fault

MAX_IDLE_S = 50.0
"""A connection that was idle for longer is not used again: a load balancer may have dropped it silently."""

# No space and no line end, which would end the request line and let a path inject headers.
_TARGET = re.compile(r"/[!-~]*").fullmatch
_BODILESS = frozenset({204, 304})


class NeverSent(ConnectionError):
    """No connection could be made, so the request was not sent."""


class HttpConnection(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self) -> None:
        self.reusable = True
        self.used_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._response: asyncio.Future[tuple[int, bytes]] | None = None
        self._buffer = bytearray()
        self._status = 0
        self._body_bytes: int | None = None  # size of the body; None until the head is complete
        self._chunks: list[bytes] | None = None  # of a chunked body
        self._until_close = False  # the body ends with the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Implements asyncio.Protocol: keeps the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Implements asyncio.Protocol: fails an incomplete response."""
        self.reusable = False
        if self._until_close and error is None:
            self._complete(bytes(self._buffer))
        else:
            self.fail(ConnectionResetError(f"connection lost: {error or 'closed by the server'}"))

    def data_received(self, data: bytes) -> None:
        """Implements asyncio.Protocol: parses the next bytes of the response."""
        self._buffer += data
        try:
            if self._body_bytes is None and not self._read_head():
                return
            if self._chunks is not None:
                self._read_chunks()
            elif not self._until_close and self._body_bytes is not None and len(self._buffer) >= self._body_bytes:
                self._complete(bytes(self._buffer[: self._body_bytes]))
        except ValueError as error:
            self.fail(ConnectionError(f"not an HTTP answer: {error}"))

    def send(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        """Sends a request; the future's result is status and body."""
        assert self._transport is not None
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._response

    def fail(self, error: Exception) -> None:
        """Closes the connection and raises the error where a response is awaited."""
        self.close()
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)

    def close(self) -> None:
        """Closes the connection."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        first, *lines = bytes(self._buffer[:end]).lower().split(b"\r\n")
        del self._buffer[: end + 4]
        self._status = int(first.partition(b" ")[2][:3])
        headers = {name.strip(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        if headers.get(b"connection") == b"close":
            self.reusable = False
        self._body_bytes = 0
        if headers.get(b"transfer-encoding") == b"chunked":
            self._chunks = []
        elif b"content-length" in headers:
            self._body_bytes = int(headers[b"content-length"])
        else:
            self._until_close = self._status not in _BODILESS
        return True

    def _read_chunks(self) -> None:
        """Moves complete chunks from the buffer; the empty one is the last."""
        assert self._chunks is not None
        at = 0
        while (end := self._buffer.find(b"\r\n", at)) >= 0:
            size = int(bytes(self._buffer[at:end]).partition(b";")[0], 16)
            if len(self._buffer) < end + 2 + size + 2:
                break
            if size == 0:
                self._complete(b"".join(self._chunks))
                return
            self._chunks.append(bytes(self._buffer[end + 2 : end + 2 + size]))
            at = end + 2 + size + 2
        del self._buffer[:at]

    def _complete(self, body: bytes) -> None:
        self._buffer.clear()
        self._body_bytes, self._chunks, self._until_close = None, None, False
        if self._response is not None and not self._response.done():
            self._response.set_result((self._status, body))


class HttpPool:
    """Connections to one server: as many as there are concurrent requests, reused."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, server_hostname: str | None = None) -> None:
        """Sets the address; connections are opened as requests need them.

        Args:
            url: of the server.
            tls: None for plain HTTP.
            server_hostname: the name that the server's certificate must have, when it is not the host's.
        """
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._tls = tls
        self._server_hostname = (server_hostname or self._host) if tls else None
        self._fixed_headers = (
            f"Host: {parts.netloc}\r\nUser-Agent: koordstream-gateway\r\n"
            "Accept: application/json\r\nAccept-Encoding: identity\r\n"
        )
        self._idle: list[HttpConnection] = []
        self._closed = False

    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> tuple[int, bytes]:
        """Sends one request; returns status and body.

        Raises:
            NeverSent, ssl.SSLError: no connection could be made.
            OSError, TimeoutError: the request was sent, and no complete response arrived.
        """
        if not _TARGET(path):
            raise ValueError(f"{path!r} is no path")
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        connection = self._take(loop.time()) or await self._connect(timeout_s)
        own_headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        size = f"Content-Length: {len(body)}\r\n" if body is not None else ""
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._fixed_headers}{own_headers}{size}\r\n".encode("ascii")
        timer = loop.call_at(ends_at, connection.fail, TimeoutError(f"no answer within {timeout_s} s"))
        answered = False
        try:
            response = await connection.send(head + body if body else head)
            answered = True
        finally:
            timer.cancel()
            if answered and connection.reusable and not self._closed:
                connection.used_at = loop.time()
                self._idle.append(connection)
            else:
                # A cancelled request's response may still arrive; it must not be read as that of the next request.
                connection.close()
        return response

    def close(self) -> None:
        """Closes idle connections; one in use is closed after its request."""
        self._closed = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _take(self, now_s: float) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and now_s - connection.used_at < MAX_IDLE_S:
                return connection
            connection.close()
        return None

    async def _connect(self, timeout_s: float) -> HttpConnection:
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    HttpConnection, self._host, self._port, ssl=self._tls, server_hostname=self._server_hostname
                )
        except ssl.SSLError:
            raise
        except OSError as error:  # TimeoutError is a subclass
            raise NeverSent(connection_fault(error)) from error
        return connection
