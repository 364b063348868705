"""Status and control of the gateway's evictions, as an operator requests it on the bus."""

from typing import Literal

import msgspec

SUBJECT = "koord.request.gateway.evictions"
"""The payload of a request is the JSON of `EvictionCommand`; the response that of `EvictionStatus`."""


class EvictionCommand(msgspec.Struct, frozen=True):
    """A request: the status, or a hold or release that is recorded first.

    Attributes:
        by: the operator.
        reason: for people; recorded with the event.
    """

    verb: Literal["status", "hold", "release"]
    by: str = ""
    reason: str = ""


class PausedEviction(msgspec.Struct, frozen=True):
    """An eviction that waits.

    Attributes:
        intent: `context/seq`.
        pod: namespace/name.
        reason: the budget that is spent, or the hold, when it was paused.
    """

    intent: str
    pod: str
    reason: str


class EvictionStatus(msgspec.Struct, frozen=True):
    """Evictions of the gateway.

    Attributes:
        held_by, held_reason, held_since_ns: the hold; empty and 0 without one.
        evicted, limit: within the window of the budgets, in the whole cluster.
        waiting: number of evictions that wait.
        paused: the oldest of these.
    """

    held_by: str
    held_reason: str
    held_since_ns: int
    evicted: int
    limit: int
    window_s: float
    waiting: int
    paused: tuple[PausedEviction, ...]
