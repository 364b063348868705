"""The gRPC server in front of the runtime: calls of the table go through hooks, all others pass through as bytes.

A call keeps its deadline, its metadata and the runtime's error with code, text and trailing metadata.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from services.runtime_proxy.cri_messages import CRI_V1
from services.runtime_proxy.hook_client import HookClient, HookRefused
from services.runtime_proxy.hooked_calls import CALLS, HookedCall, describe
from services.runtime_proxy.known_containers import KnownContainers

log = logging.getLogger(__name__)

OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # the limits are those of kubelet and runtime
    ("grpc.max_send_message_length", -1),
)
AHEAD_S = 0.02
"""Seconds for which a request of a stream is waited for before the runtime is called: most calls have a single one."""
_OWN_METADATA = ("user-agent", "te", "content-type")


class CriProxy(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Handlers for all methods of all services; the runtime knows which of them exist."""

    def __init__(self, runtime: Any, hooks: HookClient, known: KnownContainers) -> None:
        """Prepares one.

        Args:
            runtime: channel to it.
            known: its pods and containers.
        """
        self._runtime, self._hooks, self._known = runtime, hooks, known

    def service(self, details: Any) -> Any:
        """Returns the handler of a call."""
        method = details.method
        if (call := CALLS.get(method)) is not None:

            async def hooked(request: bytes, context: Any) -> bytes:
                return await self._hooked(method, call, request, context)

            return grpc.unary_unary_rpc_method_handler(hooked)
        if method.startswith(CRI_V1):

            async def single(request: bytes, context: Any) -> AsyncIterator[bytes]:
                async for answer in self._single(method, request, context):
                    yield answer

            return grpc.unary_stream_rpc_method_handler(single)

        async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            ahead = await _read_ahead(requests)
            if (only := _only_one(ahead)) is not None:
                async for answer in self._single(method, only, context):
                    yield answer
                return
            started = self._runtime.stream_stream(method)(**_forwarded(context))
            sending = asyncio.create_task(_send(_all_of(ahead, requests), started))
            try:
                async for answer in _answers(started, context):
                    yield answer
            finally:
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending

        return grpc.stream_stream_rpc_method_handler(stream)

    async def _single(self, method: str, request: bytes, context: Any) -> AsyncIterator[bytes]:
        """Passes one request: it and its end are one write, which a runtime without the method cannot cut in two."""
        started = self._runtime.unary_stream(method)(request, **_forwarded(context))
        async for answer in _answers(started, context):
            yield answer

    async def _hooked(self, method: str, call: HookedCall, data: bytes, context: Any) -> bytes:
        """Carries out a call with its hooks; without them where its pod or container is not known."""
        try:
            request = call.request.FromString(data)
        except DecodeError as error:
            log.warning(
                "a request passes without hooks: it cannot be decoded", extra={"call": method, "why": str(error)}
            )
            return await self._forward(method, data, context)
        subject = call.subject(self._known, request)
        if subject is None:
            if call.before:  # a kubelet stops what has stopped, and removes it: nothing is missed there
                log.info("a request passes without hooks: its container is not known", extra={"call": method})
            return await self._forward(method, data, context)
        try:
            changed = await self._hooks.before(call.before, subject)
        except HookRefused as refused:
            log.error("a request is refused", extra={"call": method, "why": str(refused)})  # noqa: TRY400
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))
        if changed and call.write is not None:
            call.write(request, subject)
            data = request.SerializeToString()
        answer, failure = b"", None
        try:
            answer = await self._called(method, data, context)
        except grpc.aio.AioRpcError as error:
            failure = error
        else:
            self._record(call, request, subject, answer)
        await self._hooks.after(call.after, subject)
        if failure is not None:
            await _abort(context, failure)
        return answer

    def _record(self, call: HookedCall, request: Any, subject: Any, answer: bytes) -> None:
        try:
            call.record(self._known, request, subject, answer)
        except DecodeError as error:
            log.warning(
                "an answer of the runtime cannot be decoded", extra={"of": describe(subject), "why": str(error)}
            )

    async def _forward(self, method: str, data: bytes, context: Any) -> bytes:
        try:
            return await self._called(method, data, context)
        except grpc.aio.AioRpcError as error:
            await _abort(context, error)
            raise

    async def _called(self, method: str, data: bytes, context: Any) -> bytes:
        """Calls the runtime.

        Raises:
            grpc.aio.AioRpcError: its error.
        """
        call = self._runtime.unary_unary(method)(data, **_forwarded(context))
        answer: bytes = await call
        if trailing := await call.trailing_metadata():
            context.set_trailing_metadata(tuple(trailing))
        return answer


def _forwarded(context: Any) -> dict[str, Any]:
    """Returns deadline and metadata of a call for the one to the runtime."""
    metadata = tuple(
        (key, value)
        for key, value in context.invocation_metadata() or ()
        if key not in _OWN_METADATA and not key.startswith((":", "grpc-"))
    )
    return {"timeout": context.time_remaining(), "metadata": metadata}


async def _answers(call: Any, context: Any) -> AsyncIterator[bytes]:
    """Yields the answers of the runtime, and ends the call as it does."""
    try:
        async for answer in call:
            yield answer
    except grpc.aio.AioRpcError as error:
        await _abort(context, error)
    if trailing := await call.trailing_metadata():
        context.set_trailing_metadata(tuple(trailing))


async def _next(requests: AsyncIterator[bytes]) -> bytes | None:
    return await anext(requests, None)


async def _read_ahead(requests: AsyncIterator[bytes]) -> list["asyncio.Task[bytes | None]"]:
    """Reads up to two requests of a stream, AHEAD_S each; None is its end. The last one may still be under way."""
    ahead: list[asyncio.Task[bytes | None]] = []
    for _ in range(2):
        ahead.append(asyncio.create_task(_next(requests)))
        try:
            await asyncio.wait(ahead[-1:], timeout=AHEAD_S)
        except asyncio.CancelledError:
            ahead[-1].cancel()
            raise
        if not ahead[-1].done() or ahead[-1].result() is None:
            break
    return ahead


def _only_one(ahead: Sequence["asyncio.Task[bytes | None]"]) -> bytes | None:
    """Returns the request of a stream that has ended after it."""
    if len(ahead) == 2 and ahead[1].done() and ahead[1].result() is None:
        return ahead[0].result()
    return None


async def _all_of(
    ahead: Iterable["asyncio.Task[bytes | None]"], requests: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    for each in ahead:
        request = await each
        if request is None:
            return
        yield request
    async for request in requests:
        yield request


async def _send(requests: AsyncIterator[bytes], call: Any) -> None:
    """Sends a stream of requests. If the call ends meanwhile, the reader of its answers gets the error."""
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
        async for request in requests:
            await call.write(request)
        await call.done_writing()


async def _abort(context: Any, error: Any) -> None:
    await context.abort(error.code(), error.details(), tuple(error.trailing_metadata() or ()))
