"""Ingest's receipt of an agent's message: the reply to a request over NATS, a message on `refused` over MQTT."""

from typing import Literal

import msgspec

from shared.kube.json_text import decode_with


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Acceptance or rejection of a report, action or inventory. It follows the commit: an accepted one is in the log.

    An inventory may wait: for its node, or because the node's devices have changed too often. Of such a one the devices
    that failed or vanished are in the log. The rest ends with the process that keeps it, until agents repeat their
    inventories.

    Attributes:
        kind, boot, seq: which message; empty and 0 when it could not be read.
        refused: the reason of a final rejection; empty when it was accepted.
        waits: not all of an inventory is in the log yet.
    """

    kind: Literal["report", "action", "inventory"]
    boot: str = ""
    seq: int = 0
    refused: str = ""
    waits: bool = False

    @property
    def accepted(self) -> bool:
        """Reports whether the message is in the log."""
        return not self.refused and not self.waits


_decoder = msgspec.json.Decoder(Receipt)


def encode(answer: Receipt) -> bytes:
    """Returns a receipt as a message: JSON, readable by a person."""
    return msgspec.json.encode(answer)


def decode(data: bytes) -> Receipt:
    """Returns a message as a receipt.

    Raises:
        msgspec.DecodeError: it is not one.
    """
    return decode_with(_decoder, data)
