"""The question of the descheduler to the scheduler: where would these pods go, all together, if they had to move?

Asked before any of them is evicted. The scheduler answers from its own plugins on the nodes as they are, in one
transaction: each pod that has a destination counts there for those behind it, and still counts on its own node, since a
move begins with a place that is held elsewhere.
"""

import msgspec

from shared.errors import KoordError

SUBJECT = "koord.scheduling.destinations"

MOST_MOVES = 512
"""Pods of one request."""


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod that is to move.

    Attributes:
        excluded: nodes that are no destination, besides its own.
        only: the one node that is; empty for any.
    """

    pod_uid: str
    excluded: tuple[str, ...] = ()
    only: str = ""


class DestinationsRequest(msgspec.Struct, frozen=True):
    """The pods that are to move, in the order in which they get their destinations."""

    moves: tuple[Move, ...]


class DestinationsResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The destinations.

    Attributes:
        seen: the positions that the answer rests on.
        nodes: uid -> node; of pods that have a destination.
        refused: uid -> the reason for which a pod has none, in the words of the scheduler.
        fault: why nothing was answered; empty for an answer.
    """

    seen: dict[str, int] = {}
    nodes: dict[str, str] = {}
    refused: dict[str, str] = {}
    fault: str = ""


class BadMovesMessage(KoordError):
    """A request or a response that cannot be read."""


def decode_request(data: bytes) -> DestinationsRequest:
    """Reads a request.

    Raises:
        BadMovesMessage: it is none, or names too many pods.
    """
    try:
        request = msgspec.json.decode(data, type=DestinationsRequest)
    except msgspec.MsgspecError as error:
        raise BadMovesMessage(f"no request for destinations: {error}") from error
    if len(request.moves) > MOST_MOVES:
        raise BadMovesMessage(f"a request for {len(request.moves)} destinations; ask for at most {MOST_MOVES}")
    return request


def decode_response(data: bytes) -> DestinationsResponse:
    """Reads a response.

    Raises:
        BadMovesMessage: it is none.
    """
    try:
        return msgspec.json.decode(data, type=DestinationsResponse)
    except msgspec.MsgspecError as error:
        raise BadMovesMessage(f"no response about destinations: {error}") from error
