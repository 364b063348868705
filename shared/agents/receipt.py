"""What ingest says to an agent about a message: the reply to a request over NATS, a message on `refused` over MQTT."""

from typing import Literal

import msgspec


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a report or action was taken. It follows the commit: what is accepted is in the log.

    Attributes:
        kind, boot, seq: which one is meant; empty and 0 when it could not be read.
        refused: why it was not taken and never will be; empty when it was.
    """

    kind: Literal["report", "action"]
    boot: str = ""
    seq: int = 0
    refused: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it is in the log."""
        return not self.refused


_decoder = msgspec.json.Decoder(Receipt)


def encode(answer: Receipt) -> bytes:
    """An answer as a message: JSON, so that a person sees what went wrong."""
    return msgspec.json.encode(answer)


def decode(data: bytes) -> Receipt:
    """A message as an answer.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _decoder.decode(data)
