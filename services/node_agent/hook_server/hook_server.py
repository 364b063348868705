"""Serves the hooks of the node to a runtime proxy: a gRPC server on a socket, and the file by which it registers.

Source: spec/node-agent.md 4.1 (mode Proxy), 5.3, 5.4.
"""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc

from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.hook_server.hook_answers import HookAnswers
from shared.errors import KoordError
from shared.file_replacement import replace_file
from shared.runtime_hooks.messages import method_of
from shared.runtime_hooks.registration import Registration, encode_registration
from shared.runtime_hooks.unix_socket_server import start_server

log = logging.getLogger(__name__)

REGISTRATION = "koordlet.json"
RETRY_S = 30.0


class HookServer(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """The server of one node."""

    def __init__(self, socket: Path, registrations: Path, registration: Registration, answers: HookAnswers) -> None:
        """Prepares one.

        Args:
            registrations: folder of the file that names this server to proxies.
            registration: its content.
        """
        self._socket, self._file, self._registration = socket, registrations / REGISTRATION, registration
        self._answers = answers
        self._stages = {method_of(stage): stage for stage in answers.stages}

    def gauges(self) -> Iterator[Gauge]:
        """Yields the numbers of containers."""
        yield from self._answers.gauges()

    async def run(self) -> None:
        """Serves until cancelled. The registration stays: its policy decides while no agent runs."""
        while True:
            server = None
            try:
                server = await start_server(self._socket, self)
                self._register()
                await server.wait_for_termination()
            except (OSError, RuntimeError) as error:
                log.warning("hooks cannot be served; it is tried again", extra={"why": str(error)})
            finally:
                if server is not None:
                    await asyncio.shield(server.stop(grace=None))
            await asyncio.sleep(RETRY_S)

    def service(self, details: Any) -> Any:
        """Returns the handler of a stage's method; None for any other."""
        stage = self._stages.get(details.method)
        if stage is None:
            return None

        async def answer(data: bytes, context: Any) -> bytes:
            try:
                return self._answers.answer(stage, data)
            except KoordError as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
                raise

        return grpc.unary_unary_rpc_method_handler(answer)

    def _register(self) -> None:
        self._file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(self._file, encode_registration(self._registration))
        log.info(
            "hooks are served to runtime proxies",
            extra={"socket": str(self._socket), "file": str(self._file), "stages": ",".join(self._answers.stages)},
        )
