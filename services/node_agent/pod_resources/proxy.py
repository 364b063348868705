"""A gRPC server on a socket of its own that answers as the kubelet's pod-resources API does, with our devices added.

Every other method, of this version or another, passes through as bytes: one request, any number of answers. Errors are
the kubelet's: code, text and trailing metadata. The API has no method with several requests.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from services.node_agent.pod_resources.allocated_devices import LIST, with_allocated_devices
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.kube.system_annotations import DEVICE_ALLOCATED

log = logging.getLogger(__name__)

SOCKET = "kubelet.sock"
MAX_MESSAGE = 16 * 1024 * 1024
RETRY_S = 30.0
_CHANNEL = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),  # a kubelet is back within a second after its start
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
)
_SERVER = _CHANNEL[3:]


class PodResourcesProxy:
    """The proxy of one node."""

    def __init__(self, kubelet: Path, folder: Path, pods: NodePodsInformer) -> None:
        """Prepares one.

        Args:
            kubelet: the kubelet's socket.
            folder: in which the proxy's socket is made.
        """
        self._kubelet, self._folder, self._pods = kubelet, folder, pods
        self._logged: set[str] = set()

    async def run(self) -> None:
        """Serves until cancelled."""
        async with grpc.aio.insecure_channel(f"unix:{self._kubelet}", options=_CHANNEL) as channel:
            while True:
                try:
                    server = await self._started(channel)
                except (OSError, RuntimeError) as error:
                    self._log("the pod-resources API cannot be served; it is tried again", str(error))
                    await asyncio.sleep(RETRY_S)
                    continue
                try:
                    await server.wait_for_termination()
                finally:
                    with suppress(OSError):
                        (self._folder / SOCKET).unlink()
                    await asyncio.shield(server.stop(grace=None))

    async def _started(self, channel: Any) -> Any:
        """Starts a server on the socket, in place of one that a former agent left.

        Raises:
            OSError, RuntimeError: the socket cannot be made.
        """
        self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        socket = self._folder / SOCKET
        socket.unlink(missing_ok=True)
        server = grpc.aio.server(options=_SERVER)
        server.add_generic_rpc_handlers((_Handlers(channel, self._with_devices),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        log.info("pod resources are served", extra={"socket": str(socket)})
        return server

    def _with_devices(self, answer: bytes) -> bytes:
        pods = self._pods.in_force
        annotations = {
            pod.metadata.key: (pod.metadata.annotations or {})[DEVICE_ALLOCATED]
            for pod in (pods.pods if pods is not None else ())
            if DEVICE_ALLOCATED in (pod.metadata.annotations or {})
        }
        try:
            found, faults = with_allocated_devices(answer, annotations)
        except DecodeError as error:
            self._log("the kubelet's answer passes through unchanged", str(error))
            return answer
        for fault in faults:
            self._log("a pod is listed without its devices", fault)
        return found

    def _log(self, what: str, why: str) -> None:
        if why not in self._logged:
            self._logged.add(why)
            log.warning(what, extra={"why": why})


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Handlers for all methods; the kubelet knows which of them exist."""

    def __init__(self, channel: Any, with_devices: Callable[[bytes], bytes]) -> None:
        self._channel, self._with_devices = channel, with_devices

    def service(self, details: Any) -> Any:
        """Returns the handler of a call."""
        change = self._with_devices if details.method == LIST else _unchanged

        async def forward(request: bytes, context: Any) -> AsyncIterator[bytes]:
            # One request and its end are one write, which a kubelet that knows no such method cannot cut in two.
            call = self._channel.unary_stream(details.method)(request, timeout=context.time_remaining())
            try:
                async for answer in call:
                    yield change(answer)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details(), tuple(error.trailing_metadata() or ()))

        return grpc.unary_stream_rpc_method_handler(forward)


def _unchanged(answer: bytes) -> bytes:
    return answer
