"""Reports that an agent kept on disk while it had no connection, compressed into one message.

It goes where reports go, as MessagePack with the tag 2. A day of 15 s reports is 288 messages of 20 reports; those of a
node with 30 pods have 15 KiB each.
"""

import zlib
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from shared.agents.decoding import decoded
from shared.agents.report import BadReport, Name

TAG = 2
MAX_REPORTS = 240
MAX_PLAIN_BYTES = 8 * 1024 * 1024
"""Bytes of the reports of one message before compression."""


class Backlog(msgspec.Struct, frozen=True, array_like=True, tag=TAG):
    """Reports of one node, oldest first.

    Attributes:
        boot: names the run of the agent that kept them.
        seq: number of this message in that run, from 1; a repeat has the same.
        packed: the encoded reports as a MessagePack array of byte strings, compressed by zlib.
    """

    node: Name
    boot: Annotated[str, Meta(min_length=1, max_length=64)]
    seq: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    packed: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Backlog)
_reports = msgspec.msgpack.Decoder(Annotated[list[bytes], Meta(max_length=MAX_REPORTS)])


def is_backlog(data: bytes) -> bool:
    """Reports whether a message on the subject of reports is one of these: a short array that begins with the tag."""
    return len(data) > 1 and data[0] & 0xF0 == 0x90 and data[1] == TAG


def encode(node: str, boot: str, seq: int, reports: Sequence[bytes]) -> bytes:
    """Returns encoded reports as one message."""
    return _encoder.encode(Backlog(node, boot, seq, zlib.compress(_encoder.encode(reports))))


def decode(data: bytes, node: str) -> tuple[Backlog, list[bytes]]:
    """Returns a message, and its reports as they were encoded; `report.decode` decodes each.

    Args:
        node: the node of the topic on which it came.

    Raises:
        BadReport: names the node, the field and the reason.
    """
    message = decoded(_decoder, Backlog, BadReport, data, node)
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(message.packed, MAX_PLAIN_BYTES)
        if unpacking.unconsumed_tail:
            raise BadReport(node, "packed", f"has more than {MAX_PLAIN_BYTES} bytes of reports")
        return message, _reports.decode(plain)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise BadReport(node, "packed", f"is no compressed list of reports: {error}") from error
