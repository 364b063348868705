"""The proxy as a process: connects to the runtime, learns its containers, and serves the kubelet until a signal ends it."""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from services.runtime_proxy import cri_messages as cri
from services.runtime_proxy.cri_proxy import OPTIONS, CriProxy, SkippedPods
from services.runtime_proxy.hook_client import HookClient
from services.runtime_proxy.known_containers import LIST_CONTAINERS, LIST_PODS, KnownContainers
from services.runtime_proxy.registered_servers import RegisteredServers
from services.runtime_proxy.settings import NAME, ProxyOptions, RuntimeProxySettings, options_of
from shared.errors import KoordError
from shared.runtime import json_logging
from shared.runtime_hooks.unix_socket_server import start_server
from shared.settings import unknown_variables

log = logging.getLogger(__name__)

RECONNECT = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 250),  # a runtime that is back is called soon
)
RUNTIME_WITHIN_S = 5.0
"""Seconds that the runtime has for each call at the start."""
DRAIN_S = 5.0
"""Seconds at the end for calls in progress."""


class NoRuntime(KoordError):
    """The runtime does not answer with CRI v1."""

    def __init__(self, endpoint: str, why: str) -> None:
        super().__init__(
            f"the container runtime at {endpoint} does not serve CRI v1: {why}; start it, or give its socket as "
            "--remote-runtime-service-endpoint"
        )


class SocketTaken(KoordError):
    """Another program serves the proxy's socket."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(f"{endpoint} is served by another program; stop it, or give --koord-runtimeproxy-endpoint")


class NoSocket(KoordError):
    """The proxy's socket cannot be made."""

    def __init__(self, endpoint: str, why: str) -> None:
        super().__init__(
            f"{endpoint} cannot be served: {why}; run the proxy as root, or give --koord-runtimeproxy-endpoint"
        )


def run(flags: Mapping[str, str], environment: Mapping[str, str]) -> int:
    """Runs until SIGTERM or SIGINT; returns the process's exit status.

    Args:
        flags: as `options_of` takes them.

    Raises:
        KoordError: a flag or setting is invalid.
    """
    settings = RuntimeProxySettings.load(NAME, environment)
    options = options_of(flags)
    json_logging.set_up(NAME, settings.log_level)
    for text in unknown_variables(NAME, (RuntimeProxySettings,), environment):
        log.warning(text)
    try:
        asyncio.run(_serve(options, settings))
    except KoordError as error:
        log.error(str(error), extra={"error": type(error).__name__})  # noqa: TRY400  the text says what to do
        return 1
    return 0


async def _serve(options: ProxyOptions, settings: RuntimeProxySettings) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    registrations = Path(settings.registrations)
    _make_folder(registrations)
    servers = RegisteredServers(registrations)
    hooks = HookClient(servers, settings.hook_within_s)
    async with grpc.aio.insecure_channel(f"unix:{options.runtime_endpoint}", options=(*RECONNECT, *OPTIONS)) as runtime:
        version = await _version(runtime, options.runtime_endpoint)
        known = await _known(runtime)
        servers.in_force()  # says at the start what is registered, and what is invalid
        skipped = SkippedPods(options.skipped_key, options.skipped_value)
        server = await _started(options.endpoint, CriProxy(runtime, hooks, known, skipped))
        gc.collect()
        gc.freeze()  # the modules stay: later collections need not scan them again
        log.info(
            "running",
            extra={
                "socket": options.endpoint,
                "runtime": version,
                "pods": len(known.pods),
                "containers": len(known.containers),
            },
        )
        try:
            await ended.wait()
        finally:
            _remove(options.endpoint)
            await asyncio.shield(server.stop(grace=DRAIN_S))
            await hooks.close()


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


async def _started(endpoint: str, proxy: CriProxy) -> Any:
    """Starts a server on the socket, in place of one that a former proxy left. Only its owner may use it.

    Raises:
        SocketTaken: another program serves it.
        NoSocket: it cannot be made.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(endpoint) == 0:
            raise SocketTaken(endpoint)
    try:
        return await start_server(Path(endpoint), proxy, OPTIONS)
    except (OSError, RuntimeError) as error:
        raise NoSocket(endpoint, str(error)) from error


def _remove(endpoint: str) -> None:
    with suppress(OSError):
        Path(endpoint).unlink()


def _make_folder(folder: Path) -> None:
    """Makes the folder of the registrations, which its owner alone can write.

    Raises:
        KoordError: it cannot be made.
    """
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise KoordError(
            f"{folder} cannot be made: {error.strerror}; run the proxy as root, or name another by "
            "KOORD_RUNTIME_PROXY_REGISTRATIONS"
        ) from error
