"""The result of trying to place the pods of a unit."""

from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.events.scheduling import ClassEvaluated


class UnitAttempt:
    """The pods of a unit that were tried.

    Attributes:
        is_complete: the requirement is met.
        placed: number of placed pods.
        failed: pods without a node, each with the evaluation of the nodes; the last one is what an incomplete unit
            lacks.
        is_prepared: something has to be prepared for a placed pod before it can be bound.
        undecided: pods that are not needed, and were not tried.
    """

    __slots__ = ("failed", "is_complete", "is_prepared", "placed", "undecided")

    def __init__(self) -> None:
        self.is_complete = True
        self.placed = 0
        self.failed: list[tuple[PodRecord, ClassEvaluated]] = []
        self.is_prepared = False
        self.undecided: list[PodRecord] = []
