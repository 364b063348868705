"""What a scheduler asks the quota ledger, and what it is told: the pods of one cycle, charged before the cycle is
recorded.

Source: architecture.md, Charging quota.
"""

import msgspec

from shared.errors import KoordError

SUBJECT = "koord.quota.charge"


class ChargeRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pods that a cycle wants to place, in the order in which it placed them.

    Attributes:
        epoch, cycle: who asks. A charge belongs to the newest that asked.
        seen: what the cycle rests on; the ledger answers once it has read that far.
        groups: pods by uid; the pods of a group (a gang) are charged together or not at all.
    """

    epoch: int
    cycle: int
    seen: dict[str, int]
    groups: tuple[tuple[str, ...], ...]


class QuotaShort(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a pod was not charged.

    Attributes:
        quota: the account that is short.
        stage: `quota` for the pod's own, `nonPreemptible` for its min, `ancestor` for one above.
        short: resource -> what is missing.
        message: as schedulers and people know it.
    """

    quota: str
    stage: str
    short: dict[str, int]
    message: str = ""


class ChargeResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of an ask.

    Attributes:
        charged_at: `quota` seq at which all of it was recorded.
        late: the cycle was over; nothing was charged for it.
        charged: uid -> the quota that was charged. A pod that is neither here nor in `refused` belongs to no quota, or
            is gone.
        refused: uid -> why it was not; of a group, all of its pods.
    """

    epoch: int
    cycle: int
    charged_at: int = 0
    late: bool = False
    charged: dict[str, str] = {}
    refused: dict[str, QuotaShort] = {}


class BadChargeMessage(KoordError):
    """A message that is no ask, or no answer."""


def encode(message: ChargeRequest | ChargeResponse) -> bytes:
    """For the bus."""
    return _ENCODER.encode(message)


def decode_request(data: bytes) -> ChargeRequest:
    """Read an ask.

    Raises:
        BadChargeMessage: it is none.
    """
    try:
        return _REQUEST.decode(data)
    except msgspec.MsgspecError as error:
        raise BadChargeMessage(f"{SUBJECT}: {error}; send a ChargeRequest as JSON") from error


def decode_response(data: bytes) -> ChargeResponse:
    """Read an answer.

    Raises:
        BadChargeMessage: it is none.
    """
    try:
        return _RESPONSE.decode(data)
    except msgspec.MsgspecError as error:
        raise BadChargeMessage(f"{SUBJECT}: the ledger answered what is no ChargeResponse: {error}") from error


_ENCODER = msgspec.json.Encoder()
_REQUEST = msgspec.json.Decoder(ChargeRequest)
_RESPONSE = msgspec.json.Decoder(ChargeResponse)
