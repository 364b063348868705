"""A proxy between the gateway and a real API server that fails like networks and servers do."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from services.gateway.kube_api.close_sockets_that_outlive_session import LingeringSockets

STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {}}
HOP = {"host", "connection", "transfer-encoding", "content-length", "content-encoding"}


class Fault:
    """A fault of the next matching requests.

    Attributes:
        kind: `answer` (an error instead of the server's response), `refuse` (connection closed before it is forwarded),
            `lose` (forwarded, then closed without the response), `hang` (never forwarded, no response), `swallow`
            (forwarded, no response), `empty` (a list without its objects),
            `freeze` (a stream's headers and first `after` bytes pass, then nothing).
        times: the number of requests that it affects; -1 for all.
    """

    def __init__(
        self, method: str, part: str, kind: str, times: int, status: int, body: dict[str, Any], after: int
    ) -> None:
        self.method, self.part, self.kind, self.times = method, part, kind, times
        self.status, self.body, self.after = status, body, after
        self.met = 0

    def takes(self, request: web.BaseRequest) -> bool:
        if self.times == 0 or request.method != self.method or self.part not in request.path_qs:
            return False
        self.times -= 1
        self.met += 1
        return True


class FaultProxy:
    """Plain HTTP in, TLS to the API server out.

    Attributes:
        url: where the gateway connects.
        requests: method and path of every request, in order.
    """

    def __init__(self, upstream: str, ca_file: Path) -> None:
        self.requests: list[tuple[str, str]] = []
        self.url = ""
        self._upstream = upstream
        self._tls = ssl.create_default_context(cafile=str(ca_file))
        self._faults: list[Fault] = []
        self._replaced: list[tuple[str, str, bytes, bytes]] = []
        self._open: dict[int, web.BaseRequest] = {}

    def fail(
        self,
        method: str,
        part: str,
        kind: str = "answer",
        *,
        times: int = 1,
        status: int = 503,
        reason: str = "",
        retry_after_s: int = 0,
        after: int = 0,
    ) -> Fault:
        """Adds a fault for the next `times` requests of that method whose path contains `part`."""
        details = {"retryAfterSeconds": retry_after_s} if retry_after_s else {}
        body = STATUS | {"code": status, "reason": reason, "message": "a fault", "details": details}
        fault = Fault(method, part, kind, times, status, body, after)
        self._faults.append(fault)
        return fault

    def replace(self, method: str, part: str, text: str, by: str) -> None:
        """Replaces a text in the responses to such requests from here on."""
        self._replaced.append((method, part, text.encode(), by.encode()))

    def count(self, method: str, part: str) -> int:
        """Returns the number of such requests."""
        return sum(1 for used, path in self.requests if used == method and part in path)

    def cut(self) -> int:
        """Breaks every connection with a request or a response in progress; returns their number."""
        cut = [request for request in self._open.values() if request.transport]
        for request in cut:
            self._close(request)
        return len(cut)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        self._open[id(request)] = request  # in the same step: what `count` shows, `cut` breaks
        try:
            return await self._answer(request)
        finally:
            del self._open[id(request)]

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        fault = next((fault for fault in self._faults if fault.takes(request)), None)
        kind = fault.kind if fault else ""
        if fault and kind == "answer":
            return web.json_response(fault.body, status=fault.status)
        if kind == "refuse":
            return self._close(request)
        if kind == "hang":
            await asyncio.sleep(3600)
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        async with self._session.request(
            request.method, self._upstream + request.path_qs, data=body or None, headers=headers, ssl=self._tls
        ) as answer:
            if kind in {"lose", "swallow"}:
                await answer.read()
                if kind == "swallow":
                    await asyncio.sleep(3600)
                return self._close(request)
            for method, part, text, by in self._replaced:
                if request.method == method and part in request.path_qs:
                    return web.Response(status=answer.status, body=(await answer.read()).replace(text, by))
            if kind == "empty":
                found = await answer.json()
                version = found["metadata"]["resourceVersion"]
                return web.json_response(found | {"items": [], "metadata": {"resourceVersion": version}})
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            passed = 0
            async for chunk in answer.content.iter_any():
                if fault and kind == "freeze" and passed + len(chunk) > fault.after:
                    await asyncio.sleep(3600)
                passed += len(chunk)
                await response.write(chunk)
            await response.write_eof()
            return response

    @staticmethod
    def _close(request: web.BaseRequest) -> web.StreamResponse:
        if request.transport:
            request.transport.abort()
        return web.Response()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FaultProxy"]:
        sockets = LingeringSockets()
        connector = aiohttp.TCPConnector(limit=0, socket_factory=sockets.make)
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(), connector=connector, auto_decompress=False
        ) as self._session:
            runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}"
            try:
                yield self
            finally:
                await runner.cleanup()
        await sockets.close()
