"""Frames of an NRI connection: ttrpc messages of several streams over one socket. Pure.

    socket   connection 4 | length 4 | part of a connection's bytes          (big-endian)
    ttrpc    length 4 | stream 4 | type 1 | flags 1 | data

Connection 1 carries requests of the runtime to the plugin, connection 2 requests of the plugin to the runtime.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

PLUGIN_CONNECTION, RUNTIME_CONNECTION = 1, 2
REQUEST, RESPONSE = 1, 2
MAX_MESSAGE = 4 * 1024 * 1024
MAX_PART = 4096
"""Bytes of a part that we send: containerd reads each into a buffer of this size, and rejects a larger one."""

_PART = struct.Struct(">II")
_MESSAGE = struct.Struct(">IIBB")
_MAX_RECEIVED_PART = MAX_MESSAGE + _MESSAGE.size


class BadFrame(ValueError):
    """Bytes that are no frame; the connection cannot be read any further."""


class Frame(NamedTuple):
    """One ttrpc message.

    Attributes:
        connection: PLUGIN_CONNECTION or RUNTIME_CONNECTION.
        stream: number of the call, chosen by its client.
        kind: REQUEST or RESPONSE.
    """

    connection: int
    stream: int
    kind: int
    data: bytes


def encode(frame: Frame) -> bytes:
    """Returns the bytes of a frame.

    Raises:
        BadFrame: its data is longer than MAX_MESSAGE.
    """
    if len(frame.data) > MAX_MESSAGE:
        raise BadFrame(f"a message of {len(frame.data)} bytes; at most {MAX_MESSAGE} are allowed")
    message = _MESSAGE.pack(len(frame.data), frame.stream, frame.kind, 0) + frame.data
    parts = (message[start : start + MAX_PART] for start in range(0, len(message), MAX_PART))
    return b"".join(_PART.pack(frame.connection, len(part)) + part for part in parts)


class FrameReader:
    """Assembles frames from bytes as they arrive."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._connections: dict[int, bytearray] = {PLUGIN_CONNECTION: bytearray(), RUNTIME_CONNECTION: bytearray()}

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yields the frames that are complete with `data`.

        Raises:
            BadFrame: a length is beyond the protocol's bounds.
        """
        self._received += data
        while len(self._received) >= _PART.size:
            connection, length = _PART.unpack_from(self._received)
            if length > _MAX_RECEIVED_PART:
                raise BadFrame(f"a part of {length} bytes; at most {_MAX_RECEIVED_PART} are allowed")
            end = _PART.size + length
            if len(self._received) < end:
                return
            part = bytes(self._received[_PART.size : end])
            del self._received[:end]
            if connection in self._connections:  # others are reserved: the runtime opens none
                yield from self._messages(connection, part)

    def _messages(self, connection: int, part: bytes) -> Iterator[Frame]:
        waiting = self._connections[connection]
        waiting += part
        while len(waiting) >= _MESSAGE.size:
            length, stream, kind, _ = _MESSAGE.unpack_from(waiting)
            if length > MAX_MESSAGE:
                raise BadFrame(f"a message of {length} bytes; at most {MAX_MESSAGE} are allowed")
            end = _MESSAGE.size + length
            if len(waiting) < end:
                return
            data = bytes(waiting[_MESSAGE.size : end])
            del waiting[:end]
            yield Frame(connection, stream, kind, data)
