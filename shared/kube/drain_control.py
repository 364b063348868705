"""The drain of nodes, as an operator requests it on the bus."""

from typing import Literal

import msgspec

SUBJECT = "koord.request.descheduler.drain"
"""The payload of a request is the JSON of `DrainCommand`; the response that of `DrainStatus`."""


class DrainCommand(msgspec.Struct, frozen=True):
    """A request: the plan for a node, which changes nothing; its drain; or the end of the drain.

    Attributes:
        by: the operator.
        reason: for people; recorded with the event.
    """

    verb: Literal["plan", "start", "cancel"]
    node: str
    by: str = ""
    reason: str = ""


class DrainedPod(msgspec.Struct, frozen=True):
    """A pod of the node.

    Attributes:
        pod: namespace/name.
        step: moves, next, waits or stays.
        reason: why it waits or stays.
    """

    pod: str
    step: str
    reason: str


class DrainStatus(msgspec.Struct, frozen=True):
    """A drain, or the plan of one.

    Attributes:
        draining: the drain goes on.
        moved: pods whose successor runs elsewhere.
        pods: on the node, by name.
        fault: why the request cannot be met; empty where it is.
        evicted: pods that it evicted without waiting for a successor.
        cordoned: the node takes no new pods.
    """

    node: str
    draining: bool = False
    moved: int = 0
    pods: tuple[DrainedPod, ...] = ()
    fault: str = ""
    evicted: int = 0
    cordoned: bool = False
