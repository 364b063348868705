"""Keeps the agent connected to the container runtime's NRI socket, and answers its requests."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.nri import messages
from services.node_agent.nri.frames import (
    PLUGIN_CONNECTION,
    REQUEST,
    RESPONSE,
    RUNTIME_CONNECTION,
    BadFrame,
    Frame,
    FrameReader,
    encode,
)
from services.node_agent.nri.plugin import NriPlugin, UnknownMethod
from shared.errors import KoordError

log = logging.getLogger(__name__)

PLUGIN_NAME, PLUGIN_INDEX = "koordlet_nri", "00"
CONNECT_TIMEOUT_S = 6.0
LEAST_BACKOFF_S, MOST_BACKOFF_S = 1.0, 30.0
UNKNOWN_ERROR, UNIMPLEMENTED = 2, 12
"""Codes of a google.rpc.Status."""
REGISTRATION_STREAM = 1
CONFIRM_INTERVAL_S, CONFIRMATIONS = 0.02, 100
_READ_BYTES = 65_536


class RegistrationRefused(KoordError):
    """The runtime does not accept the plugin."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the container runtime does not accept plugin {PLUGIN_INDEX}-{PLUGIN_NAME}: {reason}")


class NriClient:
    """The connection of one plugin.

    Attributes:
        connected: the runtime has configured the plugin, and sends its requests.
        settled: it has done so once, or the first attempt has failed.
    """

    def __init__(self, socket: Path, plugin: NriPlugin, confirm: Callable[[], bool] = lambda: True) -> None:
        """Prepares one.

        Args:
            confirm: looks at containers that the runtime was requested to update; reports whether all are.
        """
        self.connected = False
        self.settled = False
        self._socket, self._plugin, self._confirm = socket, plugin, confirm
        self._confirming: asyncio.Task[None] | None = None
        self._logged = ""

    def gauges(self) -> Iterator[Gauge]:
        """Yields the state of the connection, and the numbers of containers."""
        yield Gauge("koord_node_agent_nri_connected", {}, int(self.connected))
        yield from self._plugin.gauges()

    async def run(self) -> None:
        """Connects, answers, and connects again after each end, until cancelled."""
        try:
            await self._connect_again_and_again()
        finally:
            self._end_confirming()

    async def _connect_again_and_again(self) -> None:
        backoff_s = LEAST_BACKOFF_S
        while True:
            why = await self._serve()
            self.settled = True
            if self.connected:
                backoff_s = LEAST_BACKOFF_S
            self.connected = False
            if why != self._logged:
                self._logged = why
                log.warning(
                    "containers start without hooks: no connection to the container runtime; it is tried again",
                    extra={"socket": str(self._socket), "why": why},
                )
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, MOST_BACKOFF_S)

    async def _serve(self) -> str:
        """Serves one connection until it ends; returns why."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(str(self._socket))
        except TimeoutError:
            return f"no answer within {CONNECT_TIMEOUT_S:g} s"
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
        try:
            await self._answer(reader, writer)
        except (OSError, BadFrame, DecodeError, RegistrationRefused) as error:
            return str(error)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        return "the runtime closed the connection"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Registers the plugin, and answers requests in the order in which they come."""
        request = messages.RegisterPluginRequest(plugin_name=PLUGIN_NAME, plugin_idx=PLUGIN_INDEX)
        writer.write(encode(Frame(RUNTIME_CONNECTION, REGISTRATION_STREAM, REQUEST, _register(request))))
        frames = FrameReader()
        while data := await reader.read(_READ_BYTES):
            for frame in frames.feed(data):
                if frame.connection == RUNTIME_CONNECTION and frame.kind == RESPONSE:
                    status = messages.Response.FromString(frame.data).status
                    if status.code:
                        raise RegistrationRefused(status.message)
                elif frame.connection == PLUGIN_CONNECTION and frame.kind == REQUEST:
                    writer.write(encode(frame._replace(kind=RESPONSE, data=self._response(frame.data))))
            # Behind the answer: the runtime does not wait for this node's disk.
            self._plugin.flush()
            await writer.drain()

    def _response(self, data: bytes) -> bytes:
        request = messages.Request.FromString(data)
        try:
            payload = self._plugin.answer(request.service, request.method, request.payload)
        except KoordError as error:
            code = UNIMPLEMENTED if isinstance(error, UnknownMethod) else UNKNOWN_ERROR
            response = messages.Response(status={"code": code, "message": str(error)})
        else:
            response = messages.Response(payload=payload)
            if request.method == "Synchronize":
                # Before the answer: once the runtime has repaired a container, nothing else shows that it lacked values.
                self._plugin.flush()
                self._begin()
        found: bytes = response.SerializeToString()
        return found

    def _begin(self) -> None:
        self.settled = True
        self._end_confirming()
        self._confirming = asyncio.create_task(self._confirm_repairs(), name="confirm repairs")
        if not self.connected:
            self.connected, self._logged = True, ""
            log.info("hooks are applied to containers before they start", extra={"runtime": self._plugin.runtime})

    def _end_confirming(self) -> None:
        if self._confirming is not None:
            self._confirming.cancel()

    async def _confirm_repairs(self) -> None:
        """Looks until all are repaired, so that the record has the time; a cycle of the agent looks after the rest."""
        for _ in range(CONFIRMATIONS):
            await asyncio.sleep(CONFIRM_INTERVAL_S)
            if self._confirm():
                break


def _register(request: Any) -> bytes:
    found: bytes = messages.Request(
        service=messages.RUNTIME, method="RegisterPlugin", payload=request.SerializeToString()
    ).SerializeToString()
    return found
