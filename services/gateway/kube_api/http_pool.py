"""HTTP/1.1 for short requests: one connection a request, kept for the next one.

A binding through the general client costs 300 us of a core, through this 90 us (2026, two cores shared with the API server); at
500 pods a second that decides how many pods a second there are. Watches and whatever goes through a proxy use the general client.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

KEPT_IDLE_S = 50.0
"""A connection that was idle for longer is not used again: a balancer may have dropped it without a word."""

_TARGET = re.compile(r"/[!-~]*").fullmatch  # no space, no line end: nothing that would end the request line
_BODILESS = frozenset({204, 304})


class NeverSent(ConnectionError):
    """There was no connection to send the request on."""


class Channel(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self) -> None:
        self.reusable = True
        self.used_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._buffer = bytearray()
        self._status = 0
        self._left: int | None = None  # bytes of the body that are to come; None: the head is not complete
        self._chunks: list[bytes] | None = None  # of a chunked body
        self._until_close = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of the protocol: the connection is there."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Part of the protocol: the connection is gone, and with it an answer that is not complete."""
        self.reusable = False
        if self._until_close and error is None:
            self._complete(bytes(self._buffer))
        else:
            self.fail(ConnectionResetError(f"connection lost: {error or 'closed by the server'}"))

    def data_received(self, data: bytes) -> None:
        """Part of the protocol: the next bytes of the answer."""
        self._buffer += data
        try:
            if self._left is None and not self._read_head():
                return
            if self._chunks is not None:
                self._read_chunks()
            elif not self._until_close and self._left is not None and len(self._buffer) >= self._left:
                self._complete(bytes(self._buffer[: self._left]))
        except ValueError as error:
            self.fail(ConnectionError(f"not an HTTP answer: {error}"))

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        """Send a request; the future gives status and body."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def fail(self, error: Exception) -> None:
        """Give up: the answer, if one is awaited, is this error, and the connection is of no more use."""
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def close(self) -> None:
        """End the connection."""
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
        self._left = 0
        if headers.get(b"transfer-encoding") == b"chunked":
            self._chunks = []
        elif b"content-length" in headers:
            self._left = int(headers[b"content-length"])
        else:
            self._until_close = self._status not in _BODILESS
        return True

    def _read_chunks(self) -> None:
        """Take complete chunks off the buffer; the empty one is the last."""
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
        self._left, self._chunks, self._until_close = None, None, False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((self._status, body))


class Channels:
    """Connections to one server: as many as there are requests at the same time, used again in turn."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, server_hostname: str | None = None) -> None:
        """Remember where to connect.

        Args:
            url: of the server.
            tls: None for plain HTTP.
            server_hostname: the name to verify its certificate against, when it is not the host's.
        """
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._tls = tls
        self._server_hostname = (server_hostname or self._host) if tls else None
        self._fixed = (
            f"Host: {parts.netloc}\r\nUser-Agent: koordstream-gateway\r\n"
            "Accept: application/json\r\nAccept-Encoding: identity\r\n"
        )
        self._idle: list[Channel] = []
        self._closed = False

    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> tuple[int, bytes]:
        """Send one request; return status and body.

        Raises:
            NeverSent, ssl.SSLError: no connection could be made.
            OSError, TimeoutError: the request was sent, and there is no whole answer.
        """
        if not _TARGET(path):
            raise ValueError(f"{path!r} is no path")
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        channel = self._take(loop.time()) or await self._connect(timeout_s)
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        size = f"Content-Length: {len(body)}\r\n" if body is not None else ""
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._fixed}{more}{size}\r\n".encode("ascii")
        timer = loop.call_at(ends_at, channel.fail, TimeoutError(f"no answer within {timeout_s} s"))
        answered = False
        try:
            answer = await channel.ask(head + body if body else head)
            answered = True
        finally:
            timer.cancel()
            if answered and channel.reusable and not self._closed:
                channel.used_at = loop.time()
                self._idle.append(channel)
            else:  # an answer that nobody waits for must not become the next one's
                channel.close()
        return answer

    def close(self) -> None:
        """Close what is idle; what is in use closes after its request."""
        self._closed = True
        for channel in self._idle:
            channel.close()
        self._idle.clear()

    def _take(self, now_s: float) -> Channel | None:
        while self._idle:
            channel = self._idle.pop()
            if channel.reusable and now_s - channel.used_at < KEPT_IDLE_S:
                return channel
            channel.close()
        return None

    async def _connect(self, timeout_s: float) -> Channel:
        try:
            async with asyncio.timeout(timeout_s):
                _, channel = await asyncio.get_running_loop().create_connection(
                    Channel, self._host, self._port, ssl=self._tls, server_hostname=self._server_hostname
                )
        except ssl.SSLError:
            raise
        except OSError as error:  # TimeoutError is one
            raise NeverSent(f"cannot connect to {self._host}:{self._port}: {error!r}") from error
        return channel
