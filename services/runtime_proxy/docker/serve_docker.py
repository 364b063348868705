"""Serves a kubelet in front of Docker's HTTP API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from services.runtime_proxy.docker.docker_api import MAX_HEAD_BYTES, DockerApi
from services.runtime_proxy.docker.http_proxy import DockerProxy
from services.runtime_proxy.docker.restore import restored
from services.runtime_proxy.hook_client import HookClient
from services.runtime_proxy.own_socket import DRAIN_S, Running, socket_in_place
from services.runtime_proxy.settings import ProxyOptions
from shared.runtime_hooks.unix_socket_server import made_for_owner


@asynccontextmanager
async def serve_docker(options: ProxyOptions, hooks: HookClient) -> AsyncIterator[Running]:
    """Learns Docker's containers, and serves its requests until the context ends.

    Raises:
        NoDocker, SocketTaken, NoSocket: it cannot start.
    """
    async with DockerApi(options.runtime_endpoint) as docker:
        found = await restored(docker)
        proxy = DockerProxy(docker, hooks, found.known, found.driver)
        server = web.Server(
            proxy.handle,
            handler_cancellation=True,  # a client that goes away ends its logs, events and the like
            access_log=None,
            auto_decompress=False,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
        )
        runner = web.ServerRunner(server, shutdown_timeout=DRAIN_S)
        await runner.setup()
        try:
            with socket_in_place(options.endpoint), made_for_owner(Path(options.endpoint)):
                await web.UnixSite(runner, options.endpoint).start()
            yield Running(found.version, found.known)
        finally:
            await runner.cleanup()
            await proxy.close(DRAIN_S)
