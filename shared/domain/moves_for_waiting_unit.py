"""The question of the descheduler to the scheduler: which few moves of running pods would admit this waiting unit?

Asked before any pod is evicted. The scheduler answers from its own plugins on the nodes as they are; nothing is decided
there. The descheduler checks each victim by its own filters, and asks again without the pods that they keep.
"""

import msgspec

from shared.errors import KoordError

SUBJECT = "koord.scheduling.unit-moves"

MOST_FIXED = 512
"""Pods that one request keeps on their nodes."""

MOST_LEFT = 4_096
"""Pods and workloads of which one request says what nodes they have left."""


class PlannedMove(msgspec.Struct, frozen=True):
    """A running pod that goes to another node, where it has capacity before anything moves.

    Attributes:
        pod: `namespace/name`.
    """

    pod_uid: str
    pod: str
    source: str
    destination: str


class MovesForUnitRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The unit.

    Attributes:
        unit: `namespace/name` of a waiting pod, or of a gang that waits.
        most_moves: a plan with more is none.
        fixed: uids of running pods that stay, besides those that the scheduler itself keeps.
        left: uid of a pod, its `namespace/name`, or the uid of its controller -> nodes that it has left lately: they
            are no destination.
    """

    unit: str
    most_moves: int
    fixed: tuple[str, ...] = ()
    left: dict[str, tuple[str, ...]] = {}


class MovesForUnitResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The plan.

    Attributes:
        seen: the positions that the answer rests on.
        nodes: uid of a waiting pod of the unit -> its node after the moves.
        moves: in the order in which they are made; none where the unit fits already, and none with a problem.
        problem: why no moves help, in the words of the scheduler; empty with a plan.
        fault: why nothing was answered; empty for an answer.
    """

    seen: dict[str, int] = {}
    nodes: dict[str, str] = {}
    moves: tuple[PlannedMove, ...] = ()
    problem: str = ""
    fault: str = ""


class BadUnitMessage(KoordError):
    """A request or a response that cannot be read."""


def decode_request(data: bytes) -> MovesForUnitRequest:
    """Reads a request.

    Raises:
        BadUnitMessage: it is none, allows no move, or names too many pods.
    """
    try:
        request = msgspec.json.decode(data, type=MovesForUnitRequest)
    except msgspec.MsgspecError as error:
        raise BadUnitMessage(f"no request for the moves that admit a unit: {error}") from error
    if request.most_moves < 1:
        raise BadUnitMessage(f"most_moves is {request.most_moves}; allow at least one")
    if len(request.fixed) > MOST_FIXED:
        raise BadUnitMessage(f"{len(request.fixed)} pods are to stay; name at most {MOST_FIXED}")
    if len(request.left) > MOST_LEFT:
        raise BadUnitMessage(f"{len(request.left)} pods and workloads have left nodes; name at most {MOST_LEFT}")
    return request


def decode_response(data: bytes, request: MovesForUnitRequest) -> MovesForUnitResponse:
    """Reads the response to a request.

    Raises:
        BadUnitMessage: it is none, or a plan that the request did not allow.
    """
    try:
        response = msgspec.json.decode(data, type=MovesForUnitResponse)
    except msgspec.MsgspecError as error:
        raise BadUnitMessage(f"no response about the moves that admit a unit: {error}") from error
    moves = response.moves
    if len(moves) > request.most_moves:
        raise BadUnitMessage(f"{len(moves)} moves for {request.unit}; {request.most_moves} were allowed")
    if len({move.pod_uid for move in moves}) < len(moves):
        raise BadUnitMessage(f"a pod moves twice for {request.unit}")
    for move in moves:
        if move.pod_uid in request.fixed:
            raise BadUnitMessage(f"pod {move.pod} was to stay, and moves for {request.unit}")
        if not move.destination or move.destination == move.source:
            raise BadUnitMessage(f"pod {move.pod} has no other node, and moves for {request.unit}")
    return response
