"""The plan of a cycle: what it decides about each pod, as a value.

A cycle fills a `PlanInProgress`. The finished plan is charged to the quota ledger, which may refuse placements, and its
events are created once, from the charged plan (`cycle/plan_events.py`).
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from services.scheduler.framework.gang_grouping_interface import GangStart
from services.scheduler.framework.nominations_and_victims_of_cycle import Nomination
from services.scheduler.framework.pre_bind_preparation import Preparation
from services.scheduler.framework.profile import Profile
from services.scheduler.queue.units import Group
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.events import Event
from shared.events.scheduling import ClassEvaluated, QuotaShort


class PlannedHold(NamedTuple):
    """The capacity of a node that is held for a pod without a binding.

    Attributes:
        waits_for: as in PlacementReserved.
        unit: name of its unit, if that has several pods.
        preparations: writes that it waits for.
    """

    waits_for: str
    unit: str = ""
    preparations: tuple[Preparation, ...] = ()


class ReleasedPod(NamedTuple):
    """A pod that loses the node that was held for it.

    Attributes:
        reason: for people: what ended the wait.
        withdrawn: events that end the writes that it waited for.
    """

    pod: PodRecord
    reason: str
    withdrawn: tuple[Event, ...] = ()


class LostNomination(NamedTuple):
    """A nominated pod that is not tried any more until somebody changes its group.

    Attributes:
        reason: for people: why it is held back.
    """

    pod: PodRecord
    reason: str


class PlacedPod(NamedTuple):
    """A pod with a node.

    Attributes:
        class_index: index of the evaluation of its class in the plan.
        allocation: annotations of what is reserved for it below the node.
        unit: number of its unit, if that has several pods; 0 for a pod that is a unit of its own.
        hold: what its node is held for; None for a pod that is bound.
    """

    pod: PodRecord
    pod_class: PodClass
    node: str
    score: int
    class_index: int
    allocation: Mapping[str, str]
    unit: int = 0
    hold: PlannedHold | None = None


class RefusedPod(NamedTuple):
    """A pod without a node.

    Attributes:
        class_index: index of the evaluation with the reasons.
        nomination: the node that it is nominated for, with the pods to evict there.
        message: of its condition; empty for the message that follows from the evaluation.
        loses_nomination: no eviction helps it any more, and no pod leaves for it.
    """

    pod: PodRecord
    class_index: int
    nomination: Nomination | None = None
    message: str = ""
    loses_nomination: bool = False


NOTHING_LEFT_OUT: Mapping[int, tuple[PodRecord, ...]] = {}
NO_STARTS: Mapping[int, tuple[GangStart, ...]] = {}
NONE_REFUSED: Mapping[str, QuotaShort] = {}
PASSES_NOTHING: Mapping[str, Mapping[str, str]] = {}


class StartDecision(NamedTuple):
    """A start of a waiting unit that a cycle has planned, or ended.

    Attributes:
        nodes, waits_for, starts_ns, reason: as in UnitStartPlanned.
    """

    group: Group
    nodes: Mapping[str, str]
    waits_for: tuple[str, ...]
    starts_ns: int
    reason: str


class CyclePlan(NamedTuple):
    """The decisions of one cycle.

    Attributes:
        cycle: number of the cycle.
        decisions: in the order in which the pods were tried; the pods of a unit are neighbours.
        evaluations: of classes, in the order in which they were made.
        profiles: schedulerName -> profile, for the texts of reasons.
        nominations: those that follow from the charge.
        by: as in CycleDecided.
        charged_at: `quota` seq of the ledger's response; 0 without one.
        starts: number of a unit of which pods were placed -> its gangs that were not placed before.
        planned: the starts of waiting units that were planned, or ended.
        passes: uid of a pod -> as in PodPlaced.
        released: pods that lose the nodes that were held for them.
        lost: pods that lose their nominations although no other pod wants the capacity.
        refused: uid of a pod -> as in CycleDecided.
        left_out: number of a unit of which pods were placed -> its other pods: beyond those that it needs, or without a
            node where those with one hold it.
    """

    cycle: int
    decisions: tuple[PlacedPod | RefusedPod, ...]
    evaluations: tuple[ClassEvaluated, ...]
    profiles: Mapping[str, Profile]
    nominations: tuple[Nomination, ...] = ()
    by: str = ""
    charged_at: int = 0
    left_out: Mapping[int, tuple[PodRecord, ...]] = NOTHING_LEFT_OUT
    released: tuple[ReleasedPod, ...] = ()
    lost: tuple[LostNomination, ...] = ()
    starts: Mapping[int, tuple[GangStart, ...]] = NO_STARTS
    planned: tuple[StartDecision, ...] = ()
    passes: Mapping[str, Mapping[str, str]] = PASSES_NOTHING
    refused: Mapping[str, QuotaShort] = NONE_REFUSED

    def placed(self) -> Iterator[PlacedPod]:
        """Yields the placements."""
        return (each for each in self.decisions if isinstance(each, PlacedPod))


class PlanMark(NamedTuple):
    """A point of a plan in progress to which it can be undone."""

    decisions: int
    evaluations: int


class PlanInProgress:
    """The plan of a cycle that is being decided.

    Attributes:
        decisions, evaluations, left_out, starts: as in CyclePlan, so far.
    """

    def __init__(self) -> None:
        self.decisions: list[PlacedPod | RefusedPod] = []
        self.evaluations: list[ClassEvaluated] = []
        self.left_out: dict[int, tuple[PodRecord, ...]] = {}
        self.starts: dict[int, tuple[GangStart, ...]] = {}

    def evaluated(self, evaluation: ClassEvaluated) -> int:
        """Adds the evaluation of a class; returns the index by which decisions refer to it."""
        self.evaluations.append(evaluation)
        return len(self.evaluations) - 1

    def mark(self) -> PlanMark:
        """Returns the present point of the plan."""
        return PlanMark(len(self.decisions), len(self.evaluations))

    def undo(self, mark: PlanMark) -> None:
        """Removes everything behind the mark."""
        del self.decisions[mark.decisions :]
        del self.evaluations[mark.evaluations :]

    def finished(self, cycle: int, profiles: Mapping[str, Profile]) -> CyclePlan:
        """Returns the plan."""
        return CyclePlan(
            cycle,
            tuple(self.decisions),
            tuple(self.evaluations),
            profiles,
            left_out=self.left_out,
            starts=self.starts,
        )
