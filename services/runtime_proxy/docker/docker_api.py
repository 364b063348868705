"""Docker's HTTP API behind the proxy: requests that pass through it, and those that it makes itself at its start."""

import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from shared.errors import KoordError
from shared.type_error_words import field_fault

log = logging.getLogger(__name__)

CONNECT_WITHIN_S = 5.0
ANSWER_WITHIN_S = 30.0
"""Seconds that Docker has for each answer to the proxy itself: on a busy node it needs several for its list."""
MAX_HEAD_BYTES = 2**20
"""Bytes of a line of a head, as Docker's own server takes them: credentials of registries are long."""
FAULTS = (aiohttp.ClientError, OSError, TimeoutError)
"""Errors of requests to Docker: it is not there, or does not speak HTTP."""
HOP_BY_HOP = frozenset({
    "connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_OWN_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_T = TypeVar("_T")


class NoDocker(KoordError):
    """Docker does not answer."""

    def __init__(self, endpoint: str, why: str) -> None:
        super().__init__(
            f"Docker at {endpoint} does not answer: {why}; start it, or give its socket, such as /var/run/docker.sock, "
            "as --remote-runtime-service-endpoint"
        )


class Answer(NamedTuple):
    """An answer as a whole."""

    status: int
    reason: str | None
    headers: CIMultiDict[str]
    body: bytes


class DockerApi:
    """Docker at its socket. Each request has a connection of its own: none is lost with a Docker that starts again."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(endpoint, limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_WITHIN_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_OWN_HEADERS,
            auto_decompress=False,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def call(self, request: web.BaseRequest, body: bytes) -> Answer:
        """Sends a request with a body in place of its own; returns the whole answer.

        Raises:
            FAULTS: there is none.
        """
        headers = end_to_end(request.headers)
        headers.popall("Content-Length", None)
        async with self._session.request(
            request.method, _url(request.raw_path), headers=headers, data=body or None, allow_redirects=False
        ) as answer:
            found = end_to_end(answer.headers)
            found.popall("Content-Length", None)
            return Answer(answer.status, answer.reason, found, await answer.read())

    async def forward(self, request: web.BaseRequest) -> web.StreamResponse:
        """Passes a request and its answer as they come, in pieces.

        Raises:
            FAULTS: there is no answer. An answer that breaks off ends the client's connection.
        """
        async with self._session.request(
            request.method,
            _url(request.raw_path),
            headers=end_to_end(request.headers),
            data=request.content if request.can_read_body else None,
            allow_redirects=False,
        ) as answer:
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=end_to_end(answer.headers)
            )
            await response.prepare(request)
            try:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            except FAULTS as error:
                if request.transport is not None:  # otherwise the client has gone
                    log.info("an answer of Docker breaks off", extra={"path": request.path, "why": str(error)})
                    request.protocol.force_close()
                return response
            await response.write_eof()
            return response

    async def get(self, path: str, kind: type[_T]) -> _T | None:
        """Returns what Docker has at a path; None: it is not there.

        Raises:
            NoDocker: it does not answer, or not as its API promises.
        """
        try:
            async with self._session.get(_url(path), timeout=aiohttp.ClientTimeout(total=ANSWER_WITHIN_S)) as answer:
                data = await answer.read()
        except FAULTS as error:
            raise NoDocker(self.endpoint, f"GET {path}: {str(error) or type(error).__name__}") from error
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise NoDocker(self.endpoint, f"GET {path}: {answer.status} {data[:200].decode(errors='replace')}")
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NoDocker(self.endpoint, f"GET {path}: {field_fault(error)}") from error


def end_to_end(headers: Mapping[str, str] | CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Returns the headers of a message without those of one connection."""
    named = {each.strip().lower() for each in headers.get("Connection", "").split(",")}
    found: CIMultiDict[str] = CIMultiDict()
    for key, value in headers.items():
        if (name := key.lower()) not in HOP_BY_HOP and name not in named:
            found.add(key, value)
    return found


def refusal(status: int, text: str) -> web.Response:
    """Returns an error as Docker has them."""
    body: dict[str, Any] = {"message": text}
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")


def _url(raw_path: str) -> URL:
    return URL(f"http://docker{raw_path}", encoded=True)
