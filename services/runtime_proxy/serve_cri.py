"""Serves a kubelet in front of a runtime with CRI v1."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from services.runtime_proxy import cri_messages as cri
from services.runtime_proxy.cri_proxy import OPTIONS, CriProxy
from services.runtime_proxy.hook_client import HookClient
from services.runtime_proxy.known_containers import LIST_CONTAINERS, LIST_PODS, KnownContainers
from services.runtime_proxy.own_socket import DRAIN_S, Running, socket_in_place
from services.runtime_proxy.settings import ProxyOptions
from shared.errors import KoordError
from shared.runtime_hooks.unix_socket_server import start_server

log = logging.getLogger(__name__)

RECONNECT = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 250),  # a runtime that is back is called soon
)
RUNTIME_WITHIN_S = 5.0
"""Seconds that the runtime has for each call at the start."""


class NoRuntime(KoordError):
    """The runtime does not answer with CRI v1."""

    def __init__(self, endpoint: str, why: str) -> None:
        super().__init__(
            f"the container runtime at {endpoint} does not serve CRI v1: {why}; start it, or give its socket as "
            "--remote-runtime-service-endpoint"
        )


@asynccontextmanager
async def serve_cri(options: ProxyOptions, hooks: HookClient) -> AsyncIterator[Running]:
    """Connects to the runtime, learns its containers, and serves its calls until the context ends.

    Raises:
        NoRuntime, SocketTaken, NoSocket: it cannot start.
    """
    async with grpc.aio.insecure_channel(f"unix:{options.runtime_endpoint}", options=(*RECONNECT, *OPTIONS)) as runtime:
        version = await _version(runtime, options.runtime_endpoint)
        known = await _known(runtime)
        with socket_in_place(options.endpoint):
            server = await start_server(Path(options.endpoint), CriProxy(runtime, hooks, known), OPTIONS)
        try:
            yield Running(version, known)
        finally:
            await asyncio.shield(server.stop(grace=DRAIN_S))


async def _version(runtime: Any, endpoint: str) -> str:
    """Returns name and version of the runtime.

    Raises:
        NoRuntime: it does not answer, or its answer is no message.
    """
    try:
        data = await runtime.unary_unary(f"{cri.RUNTIME_SERVICE}Version")(
            cri.VersionRequest().SerializeToString(), timeout=RUNTIME_WITHIN_S
        )
        found = cri.VersionResponse.FromString(data)
    except grpc.aio.AioRpcError as error:
        raise NoRuntime(endpoint, f"{error.code().name}: {error.details()}") from error
    except DecodeError as error:
        raise NoRuntime(endpoint, f"its version cannot be decoded: {error}") from error
    return f"{found.runtime_name} {found.runtime_version}"


async def _known(runtime: Any) -> KnownContainers:
    """Returns the runtime's pods and containers; those that it does not list start without a former state."""
    known = KnownContainers()
    try:
        lists = []
        for method, request, response in (LIST_PODS, LIST_CONTAINERS):
            data = await runtime.unary_unary(method)(request().SerializeToString(), timeout=RUNTIME_WITHIN_S)
            lists.append(response.FromString(data))
    except grpc.aio.AioRpcError as error:
        why = f"{error.code().name}: {error.details()}"
    except DecodeError as error:
        why = f"a list cannot be decoded: {error}"
    else:
        known.restore(*lists)
        return known
    log.warning("containers that run are not known: no hooks are called for them", extra={"why": why})
    return known
