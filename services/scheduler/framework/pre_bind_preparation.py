"""Writes to the cluster that a plugin needs before a pod can be bound: the PreBind step.

The node is held for the pod from the cycle that requests the writes (PlacementReserved) until all of them are done
(PodPlaced), or have failed (PlacementReleased).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

from shared.events import Event


class Preparation(ABC):
    """Writes that a pod needs before it can be bound to a node.

    Attributes:
        node: name of the node.
    """

    node: str

    @abstractmethod
    def events(self) -> Iterable[Event]:
        """Events of the cycle that request the writes."""


class Readiness(NamedTuple):
    """The state of a preparation.

    Attributes:
        is_ready: the pod can be bound.
        problem: why it can never be bound to the node, for people; empty while it may.
        withdrawn: events that end the requested writes with the hold.
    """

    is_ready: bool
    problem: str = ""
    withdrawn: tuple[Event, ...] = ()


READY = Readiness(is_ready=True)
PENDING = Readiness(is_ready=False)
