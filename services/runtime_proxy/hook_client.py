"""Calls of hook servers. Source: spec/node-agent.md 5.5."""

import asyncio
import logging
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError

from services.runtime_proxy.answer_check import BadAnswer
from services.runtime_proxy.hooked_calls import describe, is_pod, merge_answer, pod_labels
from services.runtime_proxy.registered_servers import RegisteredServers
from shared.errors import KoordError
from shared.runtime_hooks.messages import ContainerResourceHookResponse, PodSandboxHookResponse, method_of
from shared.runtime_hooks.registration import Registration

log = logging.getLogger(__name__)

MAX_CHANNELS = 10
OWN_CONNECTIONS = (("grpc.use_local_subchannel_pool", 1),)
"""A new channel does not wait where a former one could not connect."""


class SkippedPods(NamedTuple):
    """The label of pods that no hook is called for: those of hook servers themselves."""

    key: str
    value: str


class HookRefused(KoordError):
    """A hook failed under the policy `Fail`: the request must not reach the runtime."""


class _Failed(Exception):
    """A server did not answer, or its answer cannot be used; the text is the reason."""


class _Unreachable(_Failed):
    """A server is not there: the next one of the stage is called."""


class HookClient:
    """Calls the hook servers that are registered."""

    def __init__(self, servers: RegisteredServers, within_s: float, skipped: SkippedPods) -> None:
        """Prepares one.

        Args:
            within_s: seconds that one server has for its answer.
            skipped: pods for which no server is called.
        """
        self._servers, self._within_s, self._skipped = servers, within_s, skipped
        self._channels: dict[str, Any] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def before(self, stage: str, subject: Any) -> bool:
        """Calls the first server of a stage before a request; reports whether its answer changed the subject.

        Where a server is not there, the next one of the stage is called. Without an answer the request goes on as it
        is, unless the policy of a server that failed is `Fail`.

        Args:
            stage: empty: none, and nothing is called.

        Raises:
            HookRefused: it is.
        """
        for registration in self._called(stage, subject):
            try:
                merge_answer(subject, await self._answer(registration, stage, subject))
            except (_Failed, BadAnswer) as error:
                if registration.refuses:
                    raise HookRefused(
                        f"{stage} of {describe(subject)} is refused: hook server {registration.remote_endpoint}, whose "
                        f"failure-policy is Fail: {error}"
                    ) from error
                _log(registration, stage, subject, str(error))
                if isinstance(error, _Unreachable):
                    continue
                return False
            return True
        return False

    async def after(self, stage: str, subject: Any) -> str:
        """Calls the first server of a stage after a request, as `before` does; its answer changes nothing.

        Returns:
            the failure of a server whose policy is `Fail`; empty without one.
        """
        for registration in self._called(stage, subject):
            try:
                await self._answer(registration, stage, subject)
            except _Failed as error:
                _log(registration, stage, subject, str(error))
                if registration.refuses:
                    return (
                        f"{stage} of {describe(subject)} failed after the request was carried out: hook server "
                        f"{registration.remote_endpoint}, whose failure-policy is Fail: {error}"
                    )
                if isinstance(error, _Unreachable):
                    continue
            return ""
        return ""

    def _called(self, stage: str, subject: Any) -> list[Registration]:
        if not stage or pod_labels(subject).get(self._skipped.key) == self._skipped.value:
            return []
        return self._servers.for_stage(stage)

    async def close(self) -> None:
        """Closes all connections."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()
        await asyncio.gather(*self._closing)

    async def _answer(self, registration: Registration, stage: str, subject: Any) -> Any:
        """Returns a server's answer.

        Raises:
            _Failed: it cannot be reached, did not answer in time, refused, or its answer is no message.
        """
        response = PodSandboxHookResponse if is_pod(subject) else ContainerResourceHookResponse
        channel = self._channel(registration.remote_endpoint)
        try:
            data = await channel.unary_unary(method_of(stage))(subject.SerializeToString(), timeout=self._within_s)
            return response.FromString(data)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                # The next call connects at once, without the backoff of this channel: a server that is back gets it.
                if self._channels.get(registration.remote_endpoint) is channel:
                    self._close_later(self._channels.pop(registration.remote_endpoint))
                raise _Unreachable(f"it cannot be reached: {error.details()}") from error
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise _Failed(f"no answer within {self._within_s:g} s") from error
            raise _Failed(f"{error.code().name}: {error.details()}") from error
        except DecodeError as error:
            raise _Failed(f"its answer cannot be decoded: {error}") from error

    def _channel(self, endpoint: str) -> Any:
        """Returns the connection to a server; of more than MAX_CHANNELS the one that was not used for longest ends."""
        channel = self._channels.pop(endpoint, None)
        if channel is None:
            channel = grpc.aio.insecure_channel(f"unix:{endpoint}", options=OWN_CONNECTIONS)
        self._channels[endpoint] = channel
        if len(self._channels) > MAX_CHANNELS:
            self._close_later(self._channels.pop(next(iter(self._channels))))
        return channel

    def _close_later(self, channel: Any) -> None:
        """Closes a connection once the calls on it have ended."""
        closing = asyncio.create_task(channel.close(grace=self._within_s))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _log(registration: Registration, stage: str, subject: Any, why: str) -> None:
    log.warning(
        "a hook is not applied",
        extra={"stage": stage, "of": describe(subject), "server": registration.remote_endpoint, "why": why},
    )
