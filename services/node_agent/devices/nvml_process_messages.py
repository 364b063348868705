"""Messages of the process that calls NVIDIA's library to the agent: one JSON object a line."""

from typing import Annotated

import msgspec
from msgspec import Meta

Text = Annotated[str, Meta(max_length=128)]
Count = Annotated[int, Meta(ge=0)]


class MigDevice(msgspec.Struct, frozen=True):
    """A MIG instance of a card: UUID, bytes of memory."""

    uuid: Text
    memory: Count


class NvidiaCard(msgspec.Struct, frozen=True):
    """One card as the library describes it.

    Attributes:
        bus_id: its PCI address, as in sysfs; empty when the library did not give it.
        uuid, minor, memory, name: -1 and empty values when the library did not give them.
        fault: the error of the call that failed; empty when all succeeded.
        uncorrected: uncorrectable ECC errors since the driver was loaded; None where the card does not count them.
        remap_failed: a row of the memory could not be replaced.
        watched: the library reports critical errors (XID) of this card.
        mig: its instances; None while MIG is off or not supported.
        virtualization: `none`, `passthrough`, `vgpu`, `host-vgpu` or `host-vsga`.
    """

    bus_id: Text = ""
    uuid: Text = ""
    minor: Annotated[int, Meta(ge=-1)] = -1
    memory: Count = 0
    name: Text = ""
    fault: Text = ""
    uncorrected: Count | None = None
    remap_failed: bool = False
    watched: bool = True
    mig: tuple[MigDevice, ...] | None = None
    virtualization: Text = "none"


class CardsListed(msgspec.Struct, frozen=True, tag="cards"):
    """All cards of the node."""

    driver_version: Text
    cards: Annotated[tuple[NvidiaCard, ...], Meta(max_length=256)]


class UsageSampled(msgspec.Struct, frozen=True, tag="usage"):
    """Usage of cards by processes.

    Attributes:
        uses: UUID -> processes that compute, as (pid, percent of the cores, bytes).
    """

    uses: dict[Text, tuple[tuple[Count, Count, Count], ...]]


class CriticalError(msgspec.Struct, frozen=True, tag="xid"):
    """A critical error. An empty UUID: the library did not say which card."""

    uuid: Text
    xid: Count


class LibraryUnavailable(msgspec.Struct, frozen=True, tag="unavailable"):
    """The library cannot be used; the process ends."""

    reason: Text


Message = CardsListed | UsageSampled | CriticalError | LibraryUnavailable

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """Returns a message as a line."""
    return _encoder.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """Returns a line as a message.

    Raises:
        msgspec.MsgspecError: the line is no message.
    """
    found: Message = _decoder.decode(line)
    return found
