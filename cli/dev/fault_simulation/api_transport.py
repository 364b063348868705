"""The way of the gateway's requests to the API server in memory: what `KubeApi` uses of its connections.

A request takes a drawn time there and back. A plan may have it refused before it is executed (409, 429, 5xx), or lose
the answer of one that was executed (504, a cut connection, a hang until the client's time-out). Such a request may be
executed late, up to a time-out after the client has ended it: behind newer ones, or after a crash of the client.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs

import msgspec
from yarl import URL

from cli.dev.fault_simulation.memory_api import LEASES, ApiServer, Refused, key_of
from cli.dev.fault_simulation.memory_watch import Watch
from cli.dev.fault_simulation.virtual_loop import Process
from services.gateway.kube_api.authenticated_connections import Connections
from services.gateway.kube_api.client import APPLY, STRATEGIC
from services.gateway.kube_api.http_pool import NeverSent
from services.gateway.kube_api.resources import ESSENTIAL
from shared.kube.resource_names import KUBERNETES_EVENTS

BEFORE = ("409", "429", "500", "503", "refused")
"""Faults of a request that is not executed."""
AFTER = ("504", "504-on-reads", "cut", "hang")
"""Faults of a request whose answer is lost; it is executed at once or late, or it is not."""

NEVER, LATE = 0.35, 0.3
"""Shares of the writes without an answer that are not executed, and that are executed late."""


WRITES_ONLY = frozenset({"409", "504"})


class ApiFault(NamedTuple):
    """Fault of some requests while a plan's step is in force.

    Attributes:
        kind: one of BEFORE or AFTER; `504-on-reads`, as 504 is for writes; `short` for lists of nodes and pods
            that lack half; those of other resources are believed, so a world without what they lack is as it should be.
    """

    kind: str
    rate: float


class Target(NamedTuple):
    """A parsed request path."""

    resource: str
    namespace: str
    name: str
    part: str
    query: dict[str, str]


class ApiTransport:
    """The network between gateways and the server.

    Attributes:
        faults: those in force.
        cut: processes that do not reach the server.
        late: resource and `namespace/name` of the writes that are executed after their clients have ended them.
        writing: called with the process and the request of each write that is sent, but for those of Leases.
    """

    def __init__(self, server: ApiServer, seed: int) -> None:
        self.server = server
        self.faults: dict[ApiFault, None] = {}
        self.cut: dict[Process, None] = {}
        self.up = True
        self.late: set[tuple[str, str]] = set()
        self.writing: Callable[[Process, str], None] = lambda _process, _request: None
        self._random = random.Random(seed)  # noqa: S311
        self._tokens: dict[str, list[bytes]] = {}

    async def travel(self) -> None:
        """Takes the time of one direction."""
        await asyncio.sleep(0.0003 + self._random.random() * 0.003)

    def drawn(self, kinds: tuple[str, ...], *, writes: bool) -> str:
        """Draws the fault of a request; empty for none."""
        for fault in self.faults:
            if not writes and fault.kind in WRITES_ONLY:
                continue
            if fault.kind in kinds and self._random.random() < fault.rate:
                return fault.kind
        return ""

    def without_answer(self, kind: str, timeout_s: float, path: str, write: Callable[[], object]) -> None:
        """Executes a write that gets no answer: at once, late, or not at all.

        Args:
            kind: the fault.
            path: that of the request.
            timeout_s: the client's; the server executes nothing that the client has ended so long ago.
        """
        drawn = self._random.random()
        if drawn < LATE:
            target = _target(path)
            self.late.add((target.resource, f"{target.namespace}/{target.name}"))
            ends_s = timeout_s if kind == "hang" else 0.0
            self.server.later(ends_s + self._random.random() * timeout_s, write)
        elif drawn >= LATE + NEVER:
            write()

    def execute(self, method: str, path: str, headers: dict[str, str], data: bytes | None) -> tuple[int, bytes]:
        """Executes a request; returns status and body."""
        try:
            return 200, self._executed(method, _target(path), headers, data)
        except Refused as refused:
            return refused.code, refused.body()

    def _executed(self, method: str, target: Target, headers: dict[str, str], data: bytes | None) -> bytes:
        server, resource = self.server, target.resource
        key = f"{target.namespace}/{target.name}" if target.namespace else target.name
        body = msgspec.json.decode(data) if data else {}
        if resource == KUBERNETES_EVENTS and method in ("POST", "PATCH") and headers.get("Content-Type") != APPLY:
            return b"{}"  # one that the gateway makes of itself; those that services desire are kept
        if method == "GET":
            if not target.name:
                return self._list(target)
            server.find(resource, key)
            return server.encoded(resource, key)
        if method == "POST" and target.part == "binding":
            metadata = body["metadata"]
            server.bind(key, metadata["uid"], body["target"]["name"], metadata.get("annotations", {}))
            return b"{}"
        if method == "POST" and target.part == "eviction":
            server.evict(key, body["deleteOptions"]["preconditions"]["uid"])
            return b"{}"
        if method == "POST" and not target.name:
            return server.encoded(resource, key_of(server.insert(resource, body)["metadata"]))
        if method == "PUT":
            server.replace(resource, key, body)
            return server.encoded(resource, key)
        if method == "DELETE":
            server.delete(resource, key, body.get("preconditions", {}).get("uid", ""))
            return b"{}"
        if method != "PATCH":
            raise Refused(405, "MethodNotAllowed", f"{method} {resource}")
        how = headers["Content-Type"]
        if how == APPLY:
            server.apply(resource, key, body)
        else:
            server.patch(resource, key, body, strategic=how == STRATEGIC, status=target.part == "status")
        return server.encoded(resource, key)

    def _list(self, target: Target) -> bytes:
        limit, token = int(target.query.get("limit", 500)), target.query.get("continue", "")
        if token:
            left = self._tokens.pop(token, None)
            if left is None:
                raise Refused(410, "Expired", "the continue token is too old")
            version = int(token.split("-")[1])  # all pages show the objects of the first one's version
        else:
            version = self.server.version
            left = self.server.snapshot(target.resource)
            if target.resource in ESSENTIAL and self.drawn(("short",), writes=False):
                left = self._newer_half(target.resource)
        page, left, more = left[:limit], left[limit:], ""
        if left:
            more = f"t{len(self._tokens)}-{version}-{self._random.random()}"
            self._tokens[more] = left
        head = b'{"metadata":{"resourceVersion":"%d","continue":"%s"},"items":[' % (version, more.encode())
        return head + b",".join(page) + b"]}"

    def _newer_half(self, resource: str) -> list[bytes]:
        """Returns a list that lacks most of what the log has: it may not have the newest objects yet."""
        objects = self.server.objects[resource]
        newer = sorted(objects, key=lambda key: objects[key]["metadata"]["uid"])[(len(objects) + 1) // 2 :]
        return [self.server.encoded(resource, key) for key in sorted(newer)]

    def expire_tokens(self) -> None:
        """Makes lists that are under way begin anew."""
        self._tokens.clear()


def _target(path: str) -> Target:
    path, _, query = path.partition("?")
    parts = path.strip("/").split("/")
    group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, part = (*parts, "", "", "")[:3]
    resource = f"{plural}.{group}" if group else plural
    return Target(resource, namespace, name, part, {key: values[0] for key, values in parse_qs(query).items()})


class MemoryPool:
    """The connections for short requests; the interface of `HttpPool`."""

    def __init__(self, transport: ApiTransport, process: Process) -> None:
        self._transport = transport
        self._process = process

    async def request(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout_s: float
    ) -> tuple[int, bytes]:
        """Sends one request; returns status and body.

        Raises:
            NeverSent: no connection could be made.
            OSError, TimeoutError: no answer arrived.
        """
        transport = self._transport
        writes = method != "GET"
        if writes and _target(path).resource != LEASES:
            transport.writing(self._process, f"{method} {path}")
        await transport.travel()
        if self._process in transport.cut:
            await asyncio.sleep(timeout_s)
            raise NeverSent("the server is not reached")
        if not transport.up:
            raise NeverSent("connection refused")
        if fault := transport.drawn(BEFORE, writes=writes):
            await transport.travel()
            if fault == "refused":
                raise NeverSent("connection refused")
            return int(fault), b'{"message":"injected"}'
        lost, answer = transport.drawn(AFTER, writes=writes), (0, b"")
        execute = partial(transport.execute, method, path, headers, body)
        if not lost:
            answer = execute()
        elif writes:
            transport.without_answer(lost, timeout_s, path, execute)
        if lost == "hang" or self._process in transport.cut:
            await asyncio.sleep(timeout_s)
            raise TimeoutError("no answer")
        await transport.travel()
        if lost in ("504", "504-on-reads"):
            return 504, b'{"message":"injected"}'
        if lost or self._process in transport.cut:
            raise ConnectionResetError("connection lost")
        return answer


class MemoryConnections(Connections):
    """The connections of one gateway."""

    host = "http://memory"

    def __init__(self, transport: ApiTransport, process: Process) -> None:
        self._pool = MemoryPool(transport, process)
        self._transport = transport
        self._process = process

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def headers(self) -> dict[str, str]:
        """Returns no credentials."""
        return {}

    @property
    def session(self) -> Any:
        """Returns what opens watches."""
        return self

    @property
    def http_pool(self) -> Any:
        """Returns the connections for short requests."""
        return self._pool

    async def renew(self, generation: int) -> None:
        """Does nothing: there are no credentials."""

    def get(self, url: URL, *, timeout: Any, **_: Any) -> "WatchResponse":
        """Opens a watch."""
        return WatchResponse(self._transport, self._process, str(url.relative()), timeout)


class WatchResponse:
    """A response whose body is a watch; what `KubeApi.watch` uses of aiohttp's."""

    def __init__(self, transport: ApiTransport, process: Process, path: str, timeout: Any) -> None:
        self.status = 200
        self._transport = transport
        self._process = process
        self._target = _target(path)
        self._idle_s = timeout.sock_read
        self._ends_s = asyncio.get_running_loop().time() + float(self._target.query["timeoutSeconds"])
        self._body = b""
        self._watch: Watch | None = None

    async def __aenter__(self) -> Self:
        transport = self._transport
        await transport.travel()
        if self._process in transport.cut:
            await asyncio.sleep(self._idle_s)
            raise TimeoutError("the server is not reached")
        if not transport.up or transport.drawn(("refused", "cut", "hang"), writes=False):
            raise ConnectionResetError("connection refused")
        if fault := transport.drawn(("429", "500", "503", "504-on-reads"), writes=False):
            self.status, self._body = int(fault[:3]), b'{"message":"injected"}'
            return self
        try:
            self._watch = transport.server.watch(self._target.resource, int(self._target.query["resourceVersion"]))
        except Refused as refused:
            self.status, self._body = refused.code, refused.body()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watch is not None:
            self._transport.server.close(self._target.resource, self._watch)

    async def read(self) -> bytes:
        """Returns the body of a refusal."""
        return self._body

    @property
    def content(self) -> "WatchResponse":
        """Returns what reads the body."""
        return self

    async def readany(self) -> bytes:
        """Returns the lines that have arrived; empty at the end.

        Raises:
            TimeoutError: nothing has arrived for too long.
        """
        watch, loop = self._watch, asyncio.get_running_loop()
        assert watch is not None, "a refusal has no lines"
        limit_s = min(self._idle_s, max(self._ends_s - loop.time(), 0.0))
        try:
            async with asyncio.timeout(limit_s):
                await watch.wait()
                while self._process in self._transport.cut:  # delivered once the connection is there again
                    await asyncio.sleep(0.1)
        except TimeoutError:
            if loop.time() < self._ends_s:
                raise
            return b""
        if not watch.lines:
            return b""
        lines = b"\n".join(watch.lines) + b"\n"
        watch.lines.clear()
        return lines
