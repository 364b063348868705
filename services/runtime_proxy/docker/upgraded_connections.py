"""Connections that begin as HTTP and then carry bytes in both directions: attach, exec, and those of builds.

A client asks with `Upgrade`, and Docker answers with 101; older clients attach without asking, and Docker answers with
a 200 that has no end. Both connections then belong to this module, until Docker ends its own. Any other answer passes,
and ends the client's connection: whatever the client sends after it would be unseen requests.
"""

import asyncio
import re
from contextlib import suppress
from typing import NamedTuple

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from services.runtime_proxy.docker.docker_api import CONNECT_WITHIN_S, HOP_BY_HOP, MAX_HEAD_BYTES

PIECE_BYTES = 65_536
SWITCHED = 101
_ATTACHED = re.compile(r"(?:/v[0-9.]+)?/(?:containers/[^/]+/attach|exec/[^/]+/start)").fullmatch
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b").match


class _Both(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class TakenOver(web.StreamResponse):
    """The end of a request whose connection is no longer HTTP: nothing is left to send."""

    async def prepare(self, _: web.BaseRequest) -> AbstractStreamWriter | None:
        """Sends nothing."""
        return None

    async def write_eof(self, _: bytes = b"") -> None:
        """Sends nothing."""


def may_upgrade(request: web.BaseRequest) -> bool:
    """Reports whether an answer may make bytes of the connection."""
    return "Upgrade" in request.headers or (request.method == "POST" and _ATTACHED(request.path) is not None)


async def pass_bytes(request: web.BaseRequest, body: bytes, endpoint: str) -> web.StreamResponse:
    """Sends a request to Docker on a connection of its own, and passes what both sides send; returns at the end.

    Args:
        endpoint: Docker's socket.

    Raises:
        OSError, TimeoutError: Docker is not there.
    """
    opened = asyncio.open_unix_connection(endpoint, limit=MAX_HEAD_BYTES)
    docker = _Both(*await asyncio.wait_for(opened, CONNECT_WITHIN_S))
    try:
        docker.writer.write(_head(request, body) + body)
        await docker.writer.drain()
        try:
            head = await docker.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ConnectionError(f"no answer to {request.method} {request.path}: {error}") from error
        client = _taken_over(request)
        try:
            client.writer.write(head)
            if _is_open_ended(head):
                await _pass_both(client, docker)
            else:
                await _copy(docker.reader, client.writer)
        finally:
            client.writer.close()
            request.protocol.connection_lost(None)
    finally:
        docker.writer.close()
    return TakenOver()


def _head(request: web.BaseRequest, body: bytes) -> bytes:
    """Returns the head of a request, after which Docker ends a connection that is still HTTP."""
    lines = [f"{request.method} {request.raw_path} HTTP/1.1"]
    upgrade = request.headers.get("Upgrade")
    lines += [f"Connection: {'Upgrade, ' if upgrade else ''}close"] + ([f"Upgrade: {upgrade}"] if upgrade else [])
    for key, value in request.headers.items():
        if key.lower() not in HOP_BY_HOP and key.lower() != "content-length":
            lines.append(f"{key}: {value}")
    if body or request.method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode("utf-8", "surrogateescape")


def _is_open_ended(head: bytes) -> bool:
    """Reports whether an answer begins a stream of bytes in both directions."""
    found = _STATUS(head)
    status = int(found[1]) if found else 0
    names = {line.partition(b":")[0].strip().lower() for line in head.split(b"\r\n")[1:]}
    return status == SWITCHED or (status == 200 and not names & {b"content-length", b"transfer-encoding"})


def _taken_over(request: web.BaseRequest) -> _Both:
    """Takes the connection of a client from its HTTP server.

    Raises:
        ConnectionError: it has ended.
    """
    transport = request.transport
    if transport is None:
        raise ConnectionError("the client has gone")
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=PIECE_BYTES, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    with suppress(RuntimeError):  # it was not paused
        transport.resume_reading()
    return _Both(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def _pass_both(client: _Both, docker: _Both) -> None:
    """Passes bytes both ways until Docker ends. A client that has sent all still gets the rest."""
    sending = asyncio.create_task(_copy(client.reader, docker.writer))
    try:
        await _copy(docker.reader, client.writer)
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies bytes until their end, and ends the other direction too; either side may be gone."""
    with suppress(ConnectionError):
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
