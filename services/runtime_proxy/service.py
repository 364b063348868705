"""The proxy as a process: connects to the runtime, learns its containers, and serves the kubelet until a signal ends it."""

import asyncio
import gc
import logging
import signal
from collections.abc import Mapping
from pathlib import Path

from services.runtime_proxy.hook_client import HookClient, SkippedPods
from services.runtime_proxy.own_socket import remove_socket
from services.runtime_proxy.registered_servers import RegisteredServers
from services.runtime_proxy.settings import NAME, ProxyOptions, RuntimeProxySettings, options_of
from shared.errors import KoordError
from shared.runtime import json_logging
from shared.settings import unknown_variables

log = logging.getLogger(__name__)


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
    skipped = SkippedPods(options.skipped_key, options.skipped_value)
    hooks = HookClient(servers, settings.hook_within_s, skipped)
    servers.in_force()  # says at the start what is registered, and what is invalid
    if options.docker:
        from services.runtime_proxy.docker.serve_docker import serve_docker as serve
    else:
        from services.runtime_proxy.serve_cri import serve_cri as serve
    try:
        async with serve(options, hooks) as running:
            gc.collect()
            gc.freeze()  # the modules stay: later collections need not scan them again
            log.info(
                "running",
                extra={
                    "socket": options.endpoint,
                    "runtime": running.version,
                    "pods": len(running.known.pods),
                    "containers": len(running.known.containers),
                },
            )
            await ended.wait()
            remove_socket(options.endpoint)
    finally:
        await hooks.close()


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
