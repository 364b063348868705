"""The planned starts of one cycle: whether a pod may pass a waiting unit.

A unit that fits nowhere has a planned start: a node for each pod that it needs, and the pods that have to end there
first. A pod passes the unit if it is behind it in the queue, by priority and arrival, and is placed before it. It may
do so only where the start does not move:

    OtherNode    no pod of the unit is planned for the node
    EndsBefore   its deadline ends it before the planned start
    FitsBeside   its node, without the pods that have to end there and with the pods of the unit, passes all its filters

The last is tried on the transaction and undone. Pods ahead of the unit are not restricted: they may move its start.

Source: Mu'alem, Feitelson, Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2
with Backfilling, 2001.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_plan import StartDecision
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.framework.reasons import START_PLANNED
from services.scheduler.queue.active_queue import Order
from services.scheduler.queue.units import Group, Unit, class_of
from services.scheduler.state.expected_ends import deadline_ns
from services.scheduler.state.planned_start_records import PlannedStart
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.events.scheduling import Rejections

OTHER_NODE, ENDS_BEFORE, FITS_BESIDE = "OtherNode", "EndsBefore", "FitsBeside"
"""Why a pod passes a unit."""

REFUSED, NO_LONGER_WAITS, NO_LONGER_FITS = "Refused", "NoLongerWaits", "NoLongerFits"
"""Why a start is planned, or ends."""


class UnitPlan(NamedTuple):
    """A planned start in the cycle.

    Attributes:
        order: of the first pod of the unit.
        pods: row -> pods of the unit that are planned for its node.
        ends: uids of the pods that have to end first.
        starts_ns: as in UnitStartPlanned.
    """

    group: Group
    order: Order
    pods: Mapping[int, tuple[PodRecord, ...]]
    ends: frozenset[str]
    starts_ns: int


class PlannedStarts:
    """The planned starts of a cycle.

    Attributes:
        plans: unit -> its planned start.
        decided: those that the cycle has planned or ended.
        passes: uid of a pod -> unit -> why it may pass it, for the node that was last tried for the pod.
        ended: uids of pods that are removed from their nodes while a start is planned.
    """

    def __init__(self, cache: CycleInputs, transaction: CycleTransaction, now_ns: int) -> None:
        self.decided: list[StartDecision] = []
        self.passes: dict[str, Mapping[str, str]] = {}
        self.ended: frozenset[str] = frozenset()
        self._cache = cache
        self._transaction = transaction
        self._now_ns = now_ns
        self.plans: dict[Group, UnitPlan] = {}
        self._by_row: dict[int, list[UnitPlan]] = {}

    # the starts

    def take_over(self) -> list[Unit]:
        """Takes over the recorded starts that still hold; ends those of units that no longer wait.

        Returns:
            The units whose start has to be planned anew: what came since takes their nodes.
        """
        found: list[tuple[Unit, PlannedStart]] = []
        for key, start in sorted(self._cache.view.planned_starts.items()):
            unit = self._cache.queue.unit_of(Group(*key)) if self._cache.backfill else None
            if unit is None:
                self.decided.append(StartDecision(Group(*key), {}, (), 0, NO_LONGER_WAITS))
            else:
                found.append((unit, start))
        again = []
        for unit, start in sorted(found, key=lambda each: self._cache.queue.order_of(each[0].pods[0])):
            plan = self._plan(unit, start)
            if plan is not None and self.holds(plan):
                self.add(plan)
            else:
                again.append(unit)
        return again

    def add(self, plan: UnitPlan) -> None:
        """Keeps the nodes of a planned start."""
        self.plans[plan.group] = plan
        for row in plan.pods:
            self._by_row.setdefault(row, []).append(plan)

    def remove(self, group: Group) -> None:
        """Gives up the nodes of a unit that is placed."""
        plan = self.plans.pop(group, None)
        if plan is not None:
            for row in plan.pods:
                self._by_row[row].remove(plan)

    def _plan(self, unit: Unit, start: PlannedStart) -> UnitPlan | None:
        """Returns a recorded start; None where a pod or a node of it is gone, or the unit needs more pods."""
        group, requirement = unit.group, unit.requirement
        assert group is not None and requirement is not None, "it is a unit of several pods"  # noqa: PT018
        waiting, rows = {pod.uid: pod for pod in unit.pods}, self._cache.table.rows
        pods: dict[int, tuple[PodRecord, ...]] = {}
        left = dict(requirement.needed)
        for uid, node in sorted(start.nodes.items()):
            row = rows.get(node)
            if uid not in waiting or row is None or row >= self._transaction.snapshot.size:
                return None
            pods[row] = (*pods.get(row, ()), waiting[uid])
            part = requirement.part_of.get(uid, "")
            left[part] = left.get(part, 0) - 1
        if any(count > 0 for count in left.values()):
            return None
        order = self._cache.queue.order_of(unit.pods[0])
        return UnitPlan(group, order, pods, frozenset(start.waits_for), start.starts_ns)

    def holds(self, plan: UnitPlan) -> bool:
        """Returns True while every pod of a plan fits its node once the pods that it waits for have ended, beside those
        of the units ahead.
        """
        mark = self._transaction.mark()
        fits = True
        for row, pods in plan.pods.items():
            ahead = self._by_row.get(row, [])
            self._end(row, plan.ends, max(plan.starts_ns, *(other.starts_ns for other in ahead), 0))
            self._count(row, ahead)
            for pod in pods:
                pod_class = class_of(pod)
                fits = fits and self._transaction.fits(self._cache.profiles[pod_class.scheduler], pod_class, row)
                self._nominate(pod, row)
            if not fits:
                break
        self._transaction.undo(mark)
        return fits

    def on(self, row: int) -> Sequence[UnitPlan]:
        """Returns the planned starts on a node, those ahead first."""
        return self._by_row.get(row, ())

    # passing

    def admits(self, pod: PodRecord, pod_class: PodClass, row: int) -> bool:
        """Returns True where a pod on the node moves no planned start of a unit ahead of it; notes why."""
        ahead = list(self._ahead_of(pod, self.plans.values()))
        there = [plan for plan in ahead if row in plan.pods]
        reason = self._reason(pod_class, row, there) if there else OTHER_NODE
        if reason:
            self.passes[pod.uid] = {plan.group.key: reason if row in plan.pods else OTHER_NODE for plan in ahead}
        return bool(reason)

    def kept_from(self, pod: PodRecord, row: int) -> Rejections:
        """Returns the reason of a node that would move a planned start."""
        plan = next(self._ahead_of(pod, self._by_row[row]))
        return Rejections(plugin=plan.group.plugin, code=START_PLANNED, nodes=1, detail=plan.group.key)

    def close(self, evaluation: ClassEvaluation, pod: PodRecord) -> None:
        """Leaves all planned nodes of units ahead of a pod out of an evaluation."""
        for row in [row for row, plans in self._by_row.items() if any(True for _ in self._ahead_of(pod, plans))]:
            evaluation.keep(row, self.kept_from(pod, row))

    def _ahead_of(self, pod: PodRecord, plans: Iterable[UnitPlan]) -> Iterator[UnitPlan]:
        order = self._cache.queue.order_of(pod)
        group = self._cache.queue.grouped(pod).group
        return (plan for plan in plans if plan.order < order and plan.group != group)

    def _reason(self, pod_class: PodClass, row: int, plans: Sequence[UnitPlan]) -> str:
        first_ns = min(plan.starts_ns for plan in plans)  # 0 where one is unknown
        end_ns = deadline_ns(pod_class, 0, self._now_ns)
        if end_ns is not None and end_ns <= first_ns:
            return ENDS_BEFORE
        mark = self._transaction.mark()
        self._end(row, frozenset.intersection(*(plan.ends for plan in plans)), first_ns)
        self._count(row, plans)
        fits = self._transaction.fits(self._cache.profiles[pod_class.scheduler], pod_class, row)
        self._transaction.undo(mark)
        return FITS_BESIDE if fits else ""

    def _end(self, row: int, uids: frozenset[str], until_ns: int) -> None:
        """Removes these pods of a node, and those whose deadline ends them by an instant."""
        for uid, assignment in self._cache.on.get(row, {}).items():
            if uid in self.ended:
                continue
            end_ns = deadline_ns(assignment.pod_class, self._cache.view.pods[uid].started_ns, self._now_ns)
            if uid in uids or (end_ns is not None and end_ns <= until_ns):
                self._transaction.remove(assignment, row)

    def _count(self, row: int, plans: Iterable[UnitPlan]) -> None:
        for plan in plans:
            for pod in plan.pods[row]:
                self._nominate(pod, row)

    def _nominate(self, pod: PodRecord, row: int) -> None:
        pod_class = class_of(pod)
        self._transaction.nominate(pod, pod_class, self._cache.profiles[pod_class.scheduler], row, ())
