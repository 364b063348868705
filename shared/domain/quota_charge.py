"""The charge request of a scheduler and the quota ledger's response, before a cycle is recorded.

Source: architecture.md, Charging quota.
"""

import msgspec

from shared.errors import KoordError
from shared.events.scheduling import QuotaShort
from shared.kube.json_text import decode_with

SUBJECT = "koord.quota.charge"


class ChargeRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pods that a cycle places, in the order in which it placed them.

    Attributes:
        epoch, cycle: of the scheduler. A charge belongs to the newest cycle that requested it.
        seen: positions that the cycle's decisions rest on; the ledger responds once it has read them.
        groups: pods by uid; the pods of a group (a gang) are charged together or not at all.
    """

    epoch: int
    cycle: int
    seen: dict[str, int]
    groups: tuple[tuple[str, ...], ...]


REJECTED = "rejected"
"""The stage of a pod whose own quota is rejected."""


class ChargeResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a request.

    Attributes:
        charged_at: `quota` seq at which all of it was recorded.
        late: the cycle was decided already; nothing was charged for it.
        charged: uid -> the quota that was charged. A pod in neither `charged` nor `refused` belongs to no quota,
            or is deleted.
        refused: uid -> the reason; of a group, all of its pods.
    """

    epoch: int
    cycle: int
    charged_at: int = 0
    late: bool = False
    charged: dict[str, str] = {}
    refused: dict[str, QuotaShort] = {}


class BadChargeMessage(KoordError):
    """A message that is no charge request, or no response."""


def encode(message: ChargeRequest | ChargeResponse) -> bytes:
    """Encodes a message for the bus."""
    return _ENCODER.encode(message)


def decode_request(data: bytes) -> ChargeRequest:
    """Reads a request.

    Raises:
        BadChargeMessage: the message is none.
    """
    try:
        return decode_with(_REQUEST, data)
    except msgspec.MsgspecError as error:
        raise BadChargeMessage(f"{SUBJECT}: {error}; send a ChargeRequest as JSON") from error


def decode_response(data: bytes) -> ChargeResponse:
    """Reads a response.

    Raises:
        BadChargeMessage: the message is none.
    """
    try:
        return decode_with(_RESPONSE, data)
    except msgspec.MsgspecError as error:
        raise BadChargeMessage(f"{SUBJECT}: the response is no ChargeResponse: {error}") from error


_ENCODER = msgspec.json.Encoder()
_REQUEST = msgspec.json.Decoder(ChargeRequest)
_RESPONSE = msgspec.json.Decoder(ChargeResponse)
