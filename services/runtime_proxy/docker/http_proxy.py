"""The HTTP server in front of Docker: requests of the table go through hooks, all others pass through as they are."""

import asyncio
import logging

import msgspec
from aiohttp import web

from services.runtime_proxy.docker.docker_api import FAULTS, Answer, DockerApi, refusal
from services.runtime_proxy.docker.docker_calls import (
    BadRequest,
    DockerRequest,
    NotOfKubelet,
    UndecodableAnswer,
    call_of,
    decode,
    not_carried,
    operation_of,
)
from services.runtime_proxy.docker.restore import add_pod
from services.runtime_proxy.docker.upgraded_connections import may_upgrade, pass_bytes
from services.runtime_proxy.hook_client import HookClient, HookRefused
from services.runtime_proxy.hooked_calls import HookedCall, describe
from services.runtime_proxy.known_containers import KnownContainers

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 16 * 2**20
"""Bytes of a request that is read as a whole."""
DONE = (200, 201, 204, 304)
"""Statuses of a request that was carried out; 304: a container has that state already."""
ENDS, GONE = ("stop", "remove"), 404
"""Operations that end a container, and the status by which Docker no longer has it."""


class DockerProxy:
    """Answers requests to Docker."""

    def __init__(self, docker: DockerApi, hooks: HookClient, known: KnownContainers, driver: str) -> None:
        """Prepares one.

        Args:
            known: Docker's pods and containers.
            driver: its cgroup driver.
        """
        self._docker, self._hooks, self._known, self._driver = docker, hooks, known, driver
        self._running: set[asyncio.Task[web.StreamResponse]] = set()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request."""
        if not request.raw_path.startswith("/"):
            return refusal(400, f"the target {request.raw_path!r} is no path")
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        operation = operation_of(request.method, request.path)
        try:
            if operation is None and not may_upgrade(request):
                return await self._docker.forward(request)
            body = await _body(request)
            if body is None:
                return refusal(413, f"the body of {request.path} has more than {MAX_BODY_BYTES} bytes")
            if operation is None:
                return await pass_bytes(request, body, self._docker.endpoint)
        except FAULTS as error:
            return _unanswered(request, error)
        try:
            decoded = decode(*operation, request.rel_url.query.get("name", ""), body, self._driver)
        except BadRequest as error:
            return refusal(400, str(error))
        except NotOfKubelet as error:
            return refusal(500, str(error))
        # A client that goes away ends its handler, but not a request that Docker may have carried out already.
        task = asyncio.create_task(self._hooked(request, body, decoded))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def close(self, within_s: float) -> None:
        """Waits for requests whose clients have gone."""
        if self._running:
            await asyncio.wait(self._running, timeout=within_s)

    def _ended(self, task: "asyncio.Task[web.StreamResponse]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # the handler has it, if its client still waits

    async def _hooked(self, request: web.BaseRequest, body: bytes, decoded: DockerRequest) -> web.StreamResponse:
        """Carries out a request with its hooks; without them where its container is not known."""
        call = call_of(self._known, decoded)
        if decoded.operation == "create" and not decoded.config.is_sandbox:
            await add_pod(self._docker, self._known, decoded.pod_sandbox_id, self._driver)
        try:
            subject = call.subject(self._known, decoded)
            if subject is not None and await self._hooks.before(call.before, subject) and call.write is not None:
                call.write(decoded, subject)
                body = msgspec.json.encode(decoded.body)
                if dropped := not_carried(subject):
                    log.warning("a hook is not applied in full", extra={"of": describe(subject), "why": dropped})
        except (NotOfKubelet, HookRefused) as refused:
            log.error("a request is refused", extra={"path": request.path, "why": str(refused)})  # noqa: TRY400
            return refusal(500, str(refused))
        # The start of a sandbox has no stage, and a kubelet stops and removes what has ended: nothing is missed there.
        if subject is None and call.before and decoded.container_id not in self._known.pods:
            log.info("a request passes without hooks: its container is not known", extra={"path": request.path})
        answer: Answer | None = None
        try:
            answer = await self._docker.call(request, body)
        except FAULTS as error:
            response: web.StreamResponse = _unanswered(request, error)
        else:
            response = web.Response(
                status=answer.status, reason=answer.reason, headers=answer.headers, body=answer.body
            )
        if subject is None:
            return response
        done = answer is not None and answer.status in DONE
        if answer is not None and (done or (decoded.operation in ENDS and answer.status == GONE)):
            self._record(call, decoded, subject, answer.body)
        failure = await self._hooks.after(call.after, subject)
        return refusal(500, failure) if failure and done else response

    def _record(self, call: HookedCall, decoded: DockerRequest, subject: object, body: bytes) -> None:
        try:
            call.record(self._known, decoded, subject, body)
        except UndecodableAnswer as error:
            log.warning("a container is not recorded", extra={"of": describe(subject), "why": str(error)})


async def _body(request: web.BaseRequest) -> bytes | None:
    """Returns a request's body; None: it is longer than MAX_BODY_BYTES."""
    found = bytearray()
    async for piece in request.content.iter_any():
        found += piece
        if len(found) > MAX_BODY_BYTES:
            return None
    return bytes(found)


def _unanswered(request: web.BaseRequest, error: Exception) -> web.Response:
    why = str(error) or type(error).__name__
    log.warning("Docker does not answer", extra={"path": request.path, "why": why})
    return refusal(502, f"Docker does not answer: {why}")
