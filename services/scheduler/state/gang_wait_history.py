"""The waits of gangs that were placed: the history from which the start of a waiting gang is estimated.

A fold over `scheduling` alone. It keeps the newest `KEPT` waits; their events are carried forward.
"""

from collections import deque

import msgspec

KEPT = 1000
"""Waits of the history: an estimate reads all of them, and each is some hundred bytes of the State."""


class GangWait(msgspec.Struct, frozen=True, array_like=True):
    """A gang that was placed for the first time.

    Attributes:
        seq: in `scheduling`, of its GangPlaced.
        placed_ns: instant of its placement, since the epoch.
        waited_ns, pods, request, quota, priority, qos: as in GangPlaced.
    """

    seq: int
    gang: str
    placed_ns: int
    waited_ns: int
    pods: int
    request: dict[str, int]
    quota: str = ""
    priority: str = ""
    qos: str = ""


def no_waits() -> deque[GangWait]:
    """Returns an empty history."""
    return deque(maxlen=KEPT)
